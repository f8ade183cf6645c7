#include "common/train/step/step_control.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "common/train/replica/devices/devices.h"

namespace muster {
namespace {

// Indices of the fixed part of the control data. The input waits of all replicas follow, then
// metric increments, reported values and buffers.
enum Control { kLoss = 0, kExamples, kStop, kCalls, kFixedControls };

// Returns a small hash of the calls in a step. It probably differs between replicas that reported
// different names or minimized in a different order. It is so small that its sum over all replicas
// is exact in float32.
int CallsHash(const std::string& calls, int num_replicas) {
  const uint64_t bound = std::max<uint64_t>(2, (1u << 23) / static_cast<uint64_t>(num_replicas));
  return static_cast<int>(std::hash<std::string>{}(calls) % bound);
}

// Returns true if the loop reports a value of this name itself.
bool IsOwnName(const std::string& name) {
  const auto begins_with = [&name](std::string_view prefix) { return name.rfind(prefix, 0) == 0; };
  return name == "loss" || name == "learning_rate" || name == "examples_per_second" ||
         name == "input_wait_share" || name == "loss_scale" || name == "skipped_steps" ||
         begins_with("learning_rate/") || begins_with("gradient_norm/");
}

}  // namespace

void StepControl::Begin(const LossWeights& weights) {
  weights_ = weights;
  calls_.clear();
  values_.clear();
  increments_.clear();
}

void StepControl::Report(const std::string& name, const at::Tensor& value,
                         const at::Tensor& weights, int64_t examples) {
  const std::string what = fmt::format("report(\"{}\")", name);
  if (weights.defined()) {
    CheckWeighted(value, weights, examples, what);
  } else {
    CheckPerExample(value, examples, what);
  }
  if (IsOwnName(name)) {
    throw StatusError(
        ProgramError(fmt::format("report(\"{}\"): that name is the loop's own", name)));
  }
  const bool divided = weights.defined() && weights_.DividesByWeights();
  Reported& reported = values_[name];
  if (reported.sum.defined() && reported.weights.defined() != divided) {
    throw StatusError(ProgramError(
        fmt::format("{} has weights in one call of a step and none in another", what)));
  }
  const at::NoGradGuard no_grad;
  if (!weights.defined()) {
    AddTo(&reported.sum, WideSum(value) * weights_.PerExample());
  } else if (!divided) {
    AddTo(&reported.sum, WideSum(WeightedLoss(WideLoss(value), weights)) * weights_.Nominal(value));
  } else {
    AddTo(&reported.sum, WideSum(WeightedLoss(WideLoss(value), weights)));
    AddTo(&reported.weights, WideSum(weights));
  }
}

void StepControl::UpdateMetric(MetricHandle handle, const at::Tensor& output,
                               const at::Tensor& target, const at::Tensor& weights) {
  at::NoGradGuard no_grad;
  const Metric& metric = *replica_->metrics().at(handle.index).metric;
  const at::Tensor of_target = target.defined() ? target.detach() : target;
  AddTo(&increments_[handle.index],
        weights.defined() ? metric.WeightedIncrement(output.detach(), of_target, weights.detach())
                          : metric.Increment(output.detach(), of_target));
}

void StepControl::NoteMinimize(const std::vector<int>& optimizers) {
  calls_ += fmt::format("m{};", fmt::join(optimizers, ","));
}

at::Tensor StepControl::Make(const Inputs& inputs) {
  at::NoGradGuard no_grad;
  const at::Device device = replica_->device();
  for (const auto& [name, value] : values_) calls_ += name + (value.weights.defined() ? "*;" : ";");
  std::vector<at::Tensor> pieces;
  pieces.push_back(inputs.objective_sum.defined()
                       ? inputs.objective_sum.to(at::kFloat).reshape({1})
                       : at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device)));
  std::vector<float> fixed(kFixedControls - 1 + communicator_->size());
  fixed[kExamples - 1] = static_cast<float>(weights_.local_examples);
  fixed[kStop - 1] = inputs.stop ? 1.f : 0.f;
  fixed[kCalls - 1] = static_cast<float>(CallsHash(calls_, communicator_->size()));
  fixed[kFixedControls - 1 + communicator_->rank()] = static_cast<float>(inputs.input_seconds);
  pieces.push_back(CopyToDevice(at::tensor(fixed), device));
  AppendMetrics(&pieces);
  AppendValues(&pieces);
  // A single replica has nothing to average. float32 control data would round float64 buffers.
  if (communicator_->size() > 1) AppendBuffers(&pieces);
  return at::cat(pieces);
}

void StepControl::AppendMetrics(std::vector<at::Tensor>* pieces) const {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(replica_->device());
  for (size_t m = 0; m < replica_->metrics().size(); ++m) {
    const int64_t width = replica_->metrics()[m].metric->width();
    const auto found = increments_.find(static_cast<int>(m));
    pieces->push_back(found == increments_.end() ? at::zeros({width}, options)
                                                 : found->second.to(at::kFloat).reshape({width}));
  }
}

void StepControl::AppendValues(std::vector<at::Tensor>* pieces) const {
  for (const auto& [name, value] : values_) {
    at::Tensor sum = value.sum;
    if (value.weights.defined() && !weights_.OverReplicas())
      sum = at::where(value.weights.ne(0), sum / value.weights, 0) * weights_.Share();
    pieces->push_back(sum.to(at::kFloat).reshape({1}));
    if (value.weights.defined()) pieces->push_back(value.weights.to(at::kFloat).reshape({1}));
  }
}

void StepControl::AppendBuffers(std::vector<at::Tensor>* pieces) {
  // If the whole batch is damaged, no replica has an example. The buffers of all replicas then have
  // equal weight.
  const bool none = weights_.global_examples == 0;
  const double share = none ? 1.0 / communicator_->size()
                            : static_cast<double>(weights_.local_examples) /
                                  static_cast<double>(weights_.global_examples);
  buffers_->AppendTo(pieces, share, weights_.local_examples > 0 || none);
}

absl::Status StepControl::Read(const at::Tensor& reduced, StepResult* result) {
  const at::Tensor host = reduced.to(at::kCPU, at::kDouble).contiguous();
  const double* c = host.const_data_ptr<double>();
  if (c[kCalls] !=
      static_cast<double>(CallsHash(calls_, communicator_->size())) * communicator_->size()) {
    return ProgramError(
        "the program did not do the same on all replicas in this step: every replica must call "
        "minimize() in the same order and report() "
        "the same names, with an empty batch too");
  }
  result->loss = c[kLoss];
  result->examples = static_cast<int64_t>(c[kExamples]);
  result->stop = c[kStop] > 0;
  int64_t at = kFixedControls + communicator_->size();
  result->input_seconds = *std::max_element(c + kFixedControls, c + at);
  int64_t width = 0;
  for (const NamedMetric& metric : replica_->metrics()) width += metric.metric->width();
  result->metric_increments.assign(c + at, c + at + width);
  at += width;
  for (const auto& [name, value] : values_) {
    double& reported = result->values[name] = c[at++];
    if (!value.weights.defined()) continue;
    const double weights = c[at++];
    if (weights_.OverReplicas()) reported = weights != 0 ? reported / weights : 0;
    if (weights_.reduction == LossReduction::kGlobal) result->value_weights[name] = weights;
  }
  if (communicator_->size() == 1) return absl::OkStatus();
  return buffers_->Apply(reduced.narrow(0, at, reduced.numel() - at));
}

}  // namespace muster
