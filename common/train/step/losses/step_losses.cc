#include "common/train/step/losses/step_losses.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace muster {

void StepLosses::Begin(const LossWeights& weights) {
  weights_ = weights;
  objective_sum_ = at::Tensor();
  extra_losses_.clear();
  regularizers_.clear();
  weighted_.clear();
}

void StepLosses::BeginMicroBatch(int index, int count, int64_t examples) {
  micro_batch_ = index;
  micro_batches_ = count;
  examples_ = examples;
}

// ---- Calls of the program

int StepLosses::IndexOf(OptimizerHandle handle, const char* call) const {
  if (handle.index < 0 || handle.index >= static_cast<int>(replica_->optimizers().size())) {
    throw StatusError(ProgramError(
        fmt::format("{} was called with an optimizer that build() did not declare", call)));
  }
  return handle.index;
}

void StepLosses::AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  CheckPerExample(loss, examples_, "add_loss");
  extra_losses_.push_back({loss, optimizer != nullptr ? IndexOf(*optimizer, "add_loss") : -1});
}

void StepLosses::Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  if (!loss.defined() || loss.numel() != 1) {
    throw StatusError(ProgramError(fmt::format("regularize needs a scalar, got shape {}",
                                               loss.defined() ? ShapeOf(loss) : "[undefined]")));
  }
  regularizers_.push_back(
      {loss.reshape({}), optimizer != nullptr ? IndexOf(*optimizer, "regularize") : -1});
}

void StepLosses::Check(const std::vector<Objective>& objectives,
                       const std::vector<int>& minimized) const {
  if (objectives.empty()) {
    throw StatusError(ProgramError(
        "minimize was called with an empty list: give at least one {optimizer, loss}"));
  }
  bool weighted = !weighted_.empty();
  std::vector<int> optimizers = CheckEach(objectives, &weighted);
  CheckExtras(optimizers);
  if (micro_batches_ > 1 && weighted && !replica_->embeddings().empty()) {
    for (const int index : minimized)
      if (!Contains(optimizers, index)) optimizers.push_back(index);
    if (optimizers.size() > 1) {
      throw StatusError(ProgramError(
          "a step with embedding tables, weights and accumulate_steps above 1 can minimize for one "
          "optimizer only: the gradients of rows have one divisor"));
    }
  }
}

std::vector<int> StepLosses::CheckEach(const std::vector<Objective>& objectives,
                                       bool* weighted) const {
  std::vector<int> optimizers;
  for (const Objective& objective : objectives) {
    const int index = IndexOf(objective.optimizer, "minimize");
    const bool again = Contains(optimizers, index);
    if (!again) optimizers.push_back(index);
    const std::string what = objectives.size() > 1
                                 ? fmt::format("the loss of optimizer \"{}\"", NameOf(index))
                                 : "the loss";
    if (!objective.weights.defined()) {
      CheckPerExample(objective.loss, examples_, what);
    } else {
      CheckWeighted(objective.loss, objective.weights, examples_, what);
    }
    const bool accumulates =
        micro_batches_ > 1 && objective.weights.defined() && weights_.DividesByWeights();
    *weighted = *weighted || accumulates;
    // The divisor of weighted sums is known in the last micro-batch. Until then, the gradients of
    // an optimizer may come only from one weighted loss. Regularizers are deferred to the last
    // micro-batch.
    if (micro_batches_ > 1 &&
        ((again && *weighted) || (micro_batch_ > 0 && weighted_.contains(index) != accumulates))) {
      throw StatusError(ProgramError(fmt::format(
          "optimizer \"{}\" minimizes losses with weights and others: accumulate_steps above 1 "
          "needs one loss for each optimizer, with weights in all micro-batches or in none",
          NameOf(index))));
    }
  }
  return optimizers;
}

void StepLosses::CheckExtras(const std::vector<int>& optimizers) const {
  for (const std::vector<Extra>* extras : {&extra_losses_, &regularizers_}) {
    for (const Extra& extra : *extras) {
      if (extra.optimizer >= 0 || optimizers.size() == 1) continue;
      throw StatusError(ProgramError(
          fmt::format("{} was called before a minimize() of several optimizers: say whose it is, "
                      "as in {}(loss, optimizer)",
                      extras == &extra_losses_ ? "add_loss" : "regularize",
                      extras == &extra_losses_ ? "add_loss" : "regularize")));
    }
  }
}

// ---- Objectives

at::Tensor StepLosses::Plain(const at::Tensor& per_example) {
  // The objective is summed in double until the reduction, because a float32 sum over a large batch
  // loses digits.
  AddTo(&objective_sum_, WideSum(per_example) * weights_.PerExample());
  return WideLoss(per_example).sum() * weights_.PerExample();
}

std::vector<double> StepLosses::WeightScales(const std::vector<Objective>& objectives) {
  std::vector<double> scales(objectives.size(), 0.0);
  std::vector<size_t> divided;  // Indices of the objectives that are divided.
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < objectives.size(); ++i) {
    const Objective& objective = objectives[i];
    if (!objective.weights.defined()) continue;
    if (!weights_.DividesByWeights()) {
      scales[i] = weights_.Nominal(objective.loss);
      continue;
    }
    at::Tensor sum = WideSum(objective.weights);
    if (micro_batches_ > 1) {
      WeightedSum& so_far = weighted_[objective.optimizer.index];
      AddTo(&so_far.weights, sum);
      if (in_last()) sum = so_far.weights;
    }
    divided.push_back(i);
    sums.push_back(sum);
  }
  if (divided.empty()) return scales;
  at::Tensor all = at::stack(sums).contiguous();
  if (in_last() && weights_.OverReplicas()) collectives_->Sum(&all);
  all = all.to(at::kCPU);
  for (size_t d = 0; d < divided.size(); ++d)
    scales[divided[d]] =
        ScaleOf(objectives[divided[d]].optimizer.index, all.const_data_ptr<double>()[d]);
  return scales;
}

double StepLosses::ScaleOf(int optimizer, double sum) {
  if (!(sum >= 0) || std::isinf(sum)) {
    throw StatusError(ProgramError(
        fmt::format("the weights of a loss of optimizer \"{}\" sum to {}: they must be finite, "
                    "and none below 0",
                    NameOf(optimizer), sum)));
  }
  if (in_last()) return sum > 0 ? weights_.Share() / sum : 0;
  // Uses an estimate of the divisor, so that gradients stay within the range of float16.
  double& provisional = weighted_[optimizer].provisional;
  if (provisional == 0) provisional = sum > 0 ? sum * micro_batches_ * weights_.num_replicas : 1;
  return 1 / provisional;
}

void StepLosses::Accumulate(const Objective& objective, double scale, Goal* goal) {
  WeightedSum& so_far = weighted_[objective.optimizer.index];
  const at::Tensor weighted = WeightedLoss(WideLoss(objective.loss), objective.weights);
  AddTo(&so_far.loss, WideSum(weighted));
  if (!in_last()) return goal->Add(weighted.sum() * scale);
  // Rescales the earlier gradients to the final divisor.
  if (so_far.provisional > 0) goal->rescale = so_far.provisional * scale;
  AddTo(&objective_sum_, so_far.loss * scale);
  at::Tensor term = weighted.sum() * scale;
  for (const at::Tensor& regularizer : so_far.regularizers) term = term + regularizer;
  so_far.regularizers.clear();
  goal->Add(term);
}

void StepLosses::AddExtras(Goal* goal) {
  const auto mine = [goal](const Extra& extra) {
    return extra.optimizer < 0 || extra.optimizer == goal->optimizer;
  };
  const auto held = weighted_.find(goal->optimizer);
  for (const Extra& extra : extra_losses_) {
    if (!mine(extra)) continue;
    if (held != weighted_.end()) {
      throw StatusError(
          ProgramError(fmt::format("add_loss was called for optimizer \"{}\", whose loss has "
                                   "weights: accumulate_steps above "
                                   "1 needs one loss for each optimizer then",
                                   NameOf(goal->optimizer))));
    }
    goal->Add(Plain(extra.loss));
  }
  for (const Extra& extra : regularizers_) {
    if (!mine(extra)) continue;
    const at::Tensor share =
        extra.loss / (static_cast<double>(weights_.num_replicas) * micro_batches_);
    AddTo(&objective_sum_, share.detach().to(at::kDouble));
    if (held != weighted_.end() && !in_last()) {
      held->second.regularizers.push_back(share);
    } else {
      goal->Add(share);
    }
  }
  std::erase_if(extra_losses_, mine);
  std::erase_if(regularizers_, mine);
}

bool StepLosses::TrainsAnything(int index) const {
  const auto& candidates = replica_->optimizers()[index].candidates;
  return !replica_->embeddings().empty() ||
         std::any_of(candidates.begin(), candidates.end(),
                     [](const at::Tensor& p) { return p.requires_grad(); });
}

std::vector<Goal> StepLosses::Goals(const std::vector<Objective>& objectives) {
  const std::vector<double> scales = WeightScales(objectives);
  std::vector<Goal> goals;
  for (size_t i = 0; i < objectives.size(); ++i) {
    const Objective& objective = objectives[i];
    const int index = objective.optimizer.index;
    auto goal = std::find_if(goals.begin(), goals.end(),
                             [index](const Goal& g) { return g.optimizer == index; });
    if (goal == goals.end()) goal = goals.insert(goals.end(), {index, {}});
    if (!objective.weights.defined()) {
      goal->Add(Plain(objective.loss));
    } else if (micro_batches_ > 1 && weights_.DividesByWeights()) {
      Accumulate(objective, scales[i], &*goal);
    } else {
      const at::Tensor weighted = WeightedLoss(WideLoss(objective.loss), objective.weights);
      AddTo(&objective_sum_, WideSum(weighted) * scales[i]);
      goal->Add(weighted.sum() * scales[i]);
    }
  }
  for (Goal& goal : goals) {
    AddExtras(&goal);
    if (goal.objective.requires_grad() || !TrainsAnything(goal.optimizer)) continue;
    throw StatusError(ProgramError(
        goals.size() == 1 ? "the loss does not depend on any parameter"
                          : fmt::format("the loss of optimizer \"{}\" does not depend on any "
                                        "parameter",
                                        NameOf(goal.optimizer))));
  }
  return goals;
}

}  // namespace muster
