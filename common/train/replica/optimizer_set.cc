#include "common/train/replica/optimizer_set.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <map>

#include "common/base/short_list.h"
#include "common/train/replica/gradients/local_gradients.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

std::vector<bool> RequiringGrad(const NamedOptimizer& optimizer) {
  std::vector<bool> requires_grad;
  for (const at::Tensor& parameter : optimizer.candidates)
    requires_grad.push_back(parameter.requires_grad());
  return requires_grad;
}

// Returns a description of the change since the last reduction: `unfrozen "net.base" and 3 more`.
std::string DescribeChange(const NamedOptimizer& optimizer, const std::vector<bool>& now) {
  const auto& before = optimizer.differentiated;
  std::vector<std::string> parts;
  for (const bool unfrozen : {true, false}) {
    std::string first;
    int more = -1;
    for (size_t c = 0; c < now.size() && c < before.size(); ++c) {
      if (now[c] == before[c] || now[c] != unfrozen) continue;
      if (++more == 0) first = optimizer.candidate_names[c];
    }
    if (more < 0) continue;
    parts.push_back(fmt::format("{} \"{}\"{}", unfrozen ? "unfrozen" : "frozen", first,
                                AndMore(static_cast<size_t>(more))));
  }
  return parts.empty() ? "changed nothing" : fmt::format("{}", fmt::join(parts, " and "));
}

class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> action) : action_(std::move(action)) {}
  void operator()(const torch::autograd::Variable&) override { action_(); }

 private:
  const std::function<void()> action_;
};

}  // namespace

absl::Status OptimizerSet::MakeRule(int index, const std::vector<bool>& with_slots) {
  NamedOptimizer& optimizer = optimizers_[index];
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> aliases;
  std::vector<int> groups;
  std::vector<int> place(optimizer.candidates.size(), -1);
  for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
    if (!with_slots[c]) continue;
    place[c] = static_cast<int>(parameters.size());
    parameters.push_back(optimizer.candidates[c]);
    names.push_back(optimizer.candidate_names[c]);
    aliases.push_back(optimizer.candidate_aliases[c]);
    groups.push_back(optimizer.candidate_groups[c]);
  }
  const auto make =
      job_.strategy == StrategyKind::kParameterServer ? &MakeServedOptimizer : &MakeOptimizer;
  auto rule = optimizer.rule == nullptr
                  ? make(optimizer.spec, std::move(parameters), groups)
                  : optimizer.rule->WithParameters(std::move(parameters), groups);
  if (!rule.ok()) return rule.status();
  if (keeps_rules_ && !optimizer.kept)
    optimizer.kept = std::move(static_cast<TrainedParameters&>(optimizer));
  optimizer.rule = *std::move(rule);
  optimizer.parameter_names = std::move(names);
  optimizer.aliases = std::move(aliases);
  optimizer.groups = std::move(groups);
  optimizer.place = std::move(place);
  return absl::OkStatus();
}

void OptimizerSet::EndBuild() {
  built_trainable_ = Trainable();
  // A parameter may belong to several optimizers, but has only one hook. The hook looks up which
  // optimizer the current backward pass is for.
  std::map<const at::TensorImpl*, std::pair<at::Tensor, std::vector<int>>> places;
  for (size_t o = 0; o < optimizers_.size(); ++o) {
    const auto& candidates = optimizers_[o].candidates;
    for (size_t c = 0; c < candidates.size(); ++c) {
      auto& place = places[candidates[c].unsafeGetTensorImpl()];
      place.first = candidates[c];
      place.second.resize(optimizers_.size(), -1);
      place.second[o] = static_cast<int>(c);
    }
  }
  for (auto& [impl, place] : places) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        place.first, std::make_unique<GradientHook>([this, candidate_in = place.second] {
          if (active_ < 0 || candidate_in[active_] < 0) return;
          const NamedOptimizer& optimizer = optimizers_[active_];
          const int index = optimizer.place[candidate_in[active_]];
          if (index >= 0) optimizer.gradients->OnGradient(index);
        }));
  }
}

std::vector<uint8_t> OptimizerSet::Trainable() const {
  std::vector<uint8_t> all;
  for (const NamedOptimizer& optimizer : optimizers_) {
    for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
      all.push_back((optimizer.candidates[c].requires_grad() ? kRequiresGrad : 0) |
                    (optimizer.place[c] >= 0 ? kHasSlots : 0));
    }
  }
  return all;
}

absl::Status OptimizerSet::SetTrainable(const std::vector<uint8_t>& trainable, size_t* at) {
  for (size_t o = 0; o < optimizers_.size(); ++o) {
    NamedOptimizer& optimizer = optimizers_[o];
    std::vector<bool> with_slots;
    bool same = true;
    for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
      const uint8_t flags = trainable.at((*at)++);
      // Sets the flag only if it differs, because a program may share a parameter with modules
      // outside the optimizers.
      if (optimizer.candidates[c].requires_grad() != ((flags & kRequiresGrad) != 0))
        optimizer.candidates[c].set_requires_grad((flags & kRequiresGrad) != 0);
      with_slots.push_back((flags & kHasSlots) != 0);
      same = same && with_slots.back() == (optimizer.place[c] >= 0);
    }
    if (!same) MUSTER_RETURN_IF_ERROR(MakeRule(static_cast<int>(o), with_slots));
  }
  return absl::OkStatus();
}

void OptimizerSet::RetainRules(bool keep) {
  keeps_rules_ = keep;
  for (NamedOptimizer& optimizer : optimizers_) optimizer.kept.reset();
}

void OptimizerSet::PutBackRules() {
  for (NamedOptimizer& optimizer : optimizers_) {
    if (!optimizer.kept) continue;
    static_cast<TrainedParameters&>(optimizer) = *std::move(optimizer.kept);
    optimizer.kept.reset();
    // The sinks are for other parameters. The next backward pass makes a new one.
    optimizer.differentiated.clear();
    optimizer.differentiated_before.clear();
    optimizer.idle_gradients.reset();
  }
}

std::optional<std::vector<std::string>> OptimizerSet::ChangedFrozen() const {
  const std::vector<uint8_t> now = Trainable();
  bool changed = false;
  std::vector<std::string> frozen;
  size_t at = 0;
  for (const NamedOptimizer& optimizer : optimizers_) {
    for (const std::string& name : optimizer.candidate_names) {
      changed = changed || ((now[at] ^ built_trainable_[at]) & kRequiresGrad) != 0;
      if ((now[at] & kRequiresGrad) == 0) frozen.push_back(name);
      ++at;
    }
  }
  if (!changed) return std::nullopt;
  std::sort(frozen.begin(), frozen.end());
  frozen.erase(std::unique(frozen.begin(), frozen.end()), frozen.end());
  return frozen;
}

absl::Status OptimizerSet::AgreeOnTrainable(const NamedOptimizer& optimizer,
                                            const std::vector<bool>& now) {
  if (communicator_->size() == 1) return absl::OkStatus();
  at::Tensor counts = at::empty({static_cast<int64_t>(now.size())}, at::kFloat);
  std::copy(now.begin(), now.end(), counts.mutable_data_ptr<float>());
  counts = counts.to(device_);
  const absl::Status reduced = communicator_->AllReduce(BufferOf(counts), ReduceOp::kSum)->Wait();
  // If only some replicas have frozen or unfrozen parameters, the others reduce gradients at this
  // point, and the communicator reports that operations differ. The replica that detects this first
  // may already have sent the error to the others.
  const std::string why(Message(reduced));
  if (why.find("disagree on") != why.npos) {
    return ProgramError(
        fmt::format("{} This one has {} in this step: every replica must freeze and unfreeze the "
                    "same parameters in the same step",
                    why, DescribeChange(optimizer, now)));
  }
  MUSTER_RETURN_IF_ERROR(reduced);
  counts = counts.to(at::kCPU);
  for (size_t c = 0; c < now.size(); ++c) {
    const float count = counts.const_data_ptr<float>()[c];
    if (count == 0 || count == static_cast<float>(communicator_->size())) continue;
    return ProgramError(fmt::format(
        "\"{}\" requires a gradient on {} of {} replicas: every replica must freeze and unfreeze "
        "the same parameters in the same step",
        optimizer.candidate_names[c], count, communicator_->size()));
  }
  return absl::OkStatus();
}

absl::Status OptimizerSet::FollowProgram(int index) {
  NamedOptimizer& optimizer = optimizers_[index];
  std::vector<bool> now = RequiringGrad(optimizer);
  const bool changed = now != optimizer.differentiated;
  if (!changed && (communicator_ == nullptr ||
                   optimizer.gradients->control_capacity() >= ControlCapacity(index))) {
    return absl::OkStatus();
  }
  std::vector<bool> with_slots;
  bool new_slots = false;
  for (size_t c = 0; c < now.size(); ++c) {
    with_slots.push_back(now[c] || optimizer.place[c] >= 0);
    if (!now[c] || optimizer.place[c] >= 0) continue;
    if (communicator_ == nullptr) {
      return ProgramError(fmt::format(
          "\"{}\" did not require a gradient after build() and does now: parameter servers keep "
          "slots for what is trainable in build() only; leave it trainable there, and freeze it in "
          "every step before it is to train (step.number() < n): a worker makes some of the steps "
          "only",
          optimizer.candidate_names[c]));
    }
    new_slots = true;
  }
  if (communicator_ == nullptr) {
    optimizer.differentiated = std::move(now);
    return absl::OkStatus();
  }
  if (changed) MUSTER_RETURN_IF_ERROR(AgreeOnTrainable(optimizer, now));
  if (new_slots) {
    MUSTER_RETURN_IF_ERROR(MakeRule(index, with_slots));
    optimizer.differentiated_before.clear();
    optimizer.idle_gradients.reset();
  }
  // The program may have set the values of frozen parameters.
  if (changed) optimizer.rule->Begin();
  ChangeSink(index);
  return absl::OkStatus();
}

void OptimizerSet::ChangeSink(int index) {
  NamedOptimizer& optimizer = optimizers_[index];
  const std::vector<bool> now = RequiringGrad(optimizer), before = optimizer.differentiated;
  if (optimizer.idle_gradients != nullptr && optimizer.idle_differentiated == now &&
      optimizer.idle_gradients->control_capacity() >= ControlCapacity(index)) {
    std::swap(optimizer.gradients, optimizer.idle_gradients);
    optimizer.idle_differentiated = before;
    optimizer.differentiated = now;
    return;
  }
  // A new sink has new memory, which other processes must map again. For a program that switches
  // back to an earlier set of parameters, this replica therefore keeps both sinks. For a program
  // that changes the set for good, it keeps one.
  optimizer.idle_gradients.reset();
  if (now != before && now == optimizer.differentiated_before) {
    optimizer.idle_gradients = std::move(optimizer.gradients);
    optimizer.idle_differentiated = before;
  }
  optimizer.differentiated_before = before;
  MakeSink(index);
}

int64_t OptimizerSet::ControlCapacity(int index) const {
  // Room for the loop's own values, some reported values, and the metrics. The last optimizer of a
  // step also needs room for buffers.
  int64_t capacity = 512 + (communicator_ == nullptr ? 1 : communicator_->size());
  for (const NamedMetric& metric : metrics_) capacity += metric.metric->width();
  if (index + 1 == static_cast<int>(optimizers_.size())) capacity += buffer_room_;
  return capacity;
}

std::vector<std::unique_ptr<GradientSink>> OptimizerSet::MakeSinks(
    collective::Communicator* communicator, const CollectiveOptions& options, int64_t buffer_room) {
  communicator_ = communicator;
  collective_ = options;
  buffer_room_ = buffer_room;
  std::vector<std::unique_ptr<GradientSink>> sinks;
  for (size_t o = 0; o < optimizers_.size(); ++o) {
    MakeSink(static_cast<int>(o));
    sinks.push_back(std::move(optimizers_[o].gradients));
  }
  return sinks;
}

void OptimizerSet::BeginOnServers() {
  communicator_ = nullptr;
  for (NamedOptimizer& optimizer : optimizers_) optimizer.differentiated = RequiringGrad(optimizer);
}

void OptimizerSet::Detach() {
  RetainRules(false);
  for (NamedOptimizer& optimizer : optimizers_) {
    optimizer.gradients.reset();
    optimizer.idle_gradients.reset();
    optimizer.differentiated_before.clear();
  }
  communicator_ = nullptr;
}

void OptimizerSet::MakeSink(int index) {
  NamedOptimizer& optimizer = optimizers_[index];
  optimizer.gradients.reset();  // Frees the old sink's memory before the new one is made.
  const std::vector<at::Tensor> parameters = optimizer.rule->parameters();
  const int64_t control = ControlCapacity(index);
  if (communicator_->size() == 1) {
    optimizer.gradients = std::make_unique<LocalGradients>(parameters, communicator_, control);
  } else {
    const BucketOptions options{collective_.bucket_bytes, collective_.first_bucket_bytes, control,
                                /*copies_together=*/!device_.is_cpu()};
    optimizer.gradients = std::make_unique<GradientBuckets>(parameters, communicator_, options);
  }
  optimizer.differentiated = RequiringGrad(optimizer);
}

}  // namespace muster
