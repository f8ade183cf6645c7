// A program's calls about losses in a step: objectives, weights, backward passes, and values that
// are reported like a loss.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/flight/spans.h"
#include "common/train/step/loss_graph.h"
#include "common/train/step/step_impl.h"

namespace muster {
namespace {

std::string ShapeOf(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "undefined";
}

bool Contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// Converts to float32 unless the type is float32 or float64.
at::Tensor Wide(const at::Tensor& loss) {
  return loss.scalar_type() == at::kFloat || loss.scalar_type() == at::kDouble
             ? loss
             : loss.to(at::kFloat);
}

// Returns value x weight. A value with weight 0 does not count, even if it is NaN.
at::Tensor Weighted(const at::Tensor& value, const at::Tensor& weights) {
  const at::Tensor w = weights.detach().to(value.scalar_type());
  return at::where(w.ne(0), value * w, at::zeros({}, value.options()));
}

at::Tensor WideSum(const at::Tensor& value) { return value.detach().sum(at::kDouble); }

// Returns the parameters that require a gradient. Others were frozen after build(), and count as
// unused. Throws a ProgramError if a parameter already has a .grad, to which the new gradient would
// be added.
std::vector<at::Tensor> Inputs(const NamedOptimizer& optimizer) {
  std::vector<at::Tensor> inputs;
  const std::vector<at::Tensor>& parameters = optimizer.rule->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    if (parameters[i].grad().defined()) {
      throw StatusError(ProgramError(fmt::format(
          "parameter \"{}\" has a .grad before minimize(), which a backward() of the program's own "
          "left there: take such gradients with torch::autograd::grad, or clear .grad",
          optimizer.parameter_names[i])));
    }
    inputs.push_back(parameters[i]);
  }
  return inputs;
}

// Throws a ProgramError if a parameter was unfrozen after the first micro-batch, in which the
// step's buckets are made.
void CheckNotUnfrozen(const NamedOptimizer& optimizer) {
  for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
    if (!optimizer.candidates[c].requires_grad() || optimizer.differentiated[c]) continue;
    throw StatusError(ProgramError(
        fmt::format("\"{}\" was unfrozen after the first micro-batch of a step: with "
                    "accumulate_steps above 1, unfreeze before the first minimize() of the step",
                    optimizer.candidate_names[c])));
  }
}

}  // namespace

void StepImpl::CheckPerExample(const at::Tensor& value, const std::string& what) const {
  if (value.defined() && value.dim() == 1 && value.size(0) == micro_examples_) return;
  throw StatusError(ProgramError(fmt::format(
      "{} needs one value for each example, shape [{}], and got shape {}: do not reduce over the "
      "batch{}",
      what, micro_examples_, value.defined() ? ShapeOf(value) : "[undefined]",
      value.defined() && value.dim() > 1 ? ", and average over the other dimensions or give weights"
                                         : "")));
}

void StepImpl::CheckWeighted(const at::Tensor& value, const at::Tensor& weights,
                             const std::string& what) const {
  if (!value.defined() || value.dim() == 0 || value.size(0) != micro_examples_) {
    throw StatusError(ProgramError(
        fmt::format("{} must have the {} examples as its first dimension, and has shape {}", what,
                    micro_examples_, ShapeOf(value))));
  }
  if (weights.sizes() != value.sizes()) {
    throw StatusError(ProgramError(
        fmt::format("{} has shape {} and its weights have {}: give one weight for each value", what,
                    ShapeOf(value), ShapeOf(weights))));
  }
}

int StepImpl::CheckOptimizer(OptimizerHandle handle, const char* call) const {
  if (handle.index < 0 || handle.index >= static_cast<int>(replica_->optimizers().size())) {
    throw StatusError(ProgramError(
        fmt::format("{} was called with an optimizer that build() did not declare", call)));
  }
  return handle.index;
}

void StepImpl::AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  RefuseRepeated("add_loss");
  CheckPerExample(loss, "add_loss");
  extra_losses_.push_back(
      {loss, optimizer != nullptr ? CheckOptimizer(*optimizer, "add_loss") : -1});
}

void StepImpl::Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  RefuseRepeated("regularize");
  if (!loss.defined() || loss.numel() != 1) {
    throw StatusError(ProgramError(fmt::format("regularize needs a scalar, got shape {}",
                                               loss.defined() ? ShapeOf(loss) : "[undefined]")));
  }
  regularizers_.push_back(
      {loss.reshape({}), optimizer != nullptr ? CheckOptimizer(*optimizer, "regularize") : -1});
}

void StepImpl::Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights) {
  RefuseRepeated("report");
  const std::string what = fmt::format("report(\"{}\")", name);
  if (weights.defined()) {
    CheckWeighted(value, weights, what);
  } else {
    CheckPerExample(value, what);
  }
  const auto begins_with = [&name](std::string_view prefix) { return name.rfind(prefix, 0) == 0; };
  if (name == "loss" || name == "learning_rate" || name == "examples_per_second" ||
      name == "input_wait_share" || name == "loss_scale" || name == "skipped_steps" ||
      begins_with("learning_rate/") || begins_with("gradient_norm/")) {
    throw StatusError(
        ProgramError(fmt::format("report(\"{}\"): that name is the loop's own", name)));
  }
  const bool divided = weights.defined() && DividesByWeights();
  Reported& reported = values_[name];
  if (reported.sum.defined() && reported.weights.defined() != divided) {
    throw StatusError(ProgramError(
        fmt::format("{} has weights in one call of a step and none in another", what)));
  }
  const at::NoGradGuard no_grad;
  if (!weights.defined()) {
    Add(&reported.sum, WideSum(value) * LossScale());
  } else if (!divided) {
    Add(&reported.sum, WideSum(Weighted(Wide(value), weights)) * NominalScale(value));
  } else {
    Add(&reported.sum, WideSum(Weighted(Wide(value), weights)));
    Add(&reported.weights, WideSum(weights));
  }
}

double StepImpl::LossScale() const {
  switch (job_.loss_reduction) {
    case LossReduction::kGlobal:
      return 1.0 / static_cast<double>(std::max<int64_t>(1, plan_.global_examples));
    case LossReduction::kNominal:
      return 1.0 / static_cast<double>(options_.global_batch_size);
    case LossReduction::kLocalMean:
      return 1.0 / (static_cast<double>(num_replicas()) *
                    static_cast<double>(std::max<int64_t>(1, local_examples_)));
  }
  return 1.0;
}

double StepImpl::WeightedShare() const {
  if (job_.loss_reduction == LossReduction::kLocalMean) return 1.0 / num_replicas();
  return 1.0;
}

double StepImpl::NominalScale(const at::Tensor& value) const {
  int64_t elements = 1;
  for (int64_t d = 1; d < value.dim(); ++d) elements *= value.size(d);
  return LossScale() / static_cast<double>(std::max<int64_t>(1, elements));
}

void StepImpl::CheckObjectives(const std::vector<Objective>& objectives) {
  if (objectives.empty()) {
    throw StatusError(ProgramError(
        "minimize was called with an empty list: give at least one {optimizer, loss}"));
  }
  std::vector<int> optimizers;
  bool weighted = !weighted_.empty();
  for (const Objective& objective : objectives) {
    const int index = CheckOptimizer(objective.optimizer, "minimize");
    const bool again = Contains(optimizers, index);
    if (!again) optimizers.push_back(index);
    const std::string what = objectives.size() > 1
                                 ? fmt::format("the loss of optimizer \"{}\"", NameOf(index))
                                 : "the loss";
    if (!objective.weights.defined()) {
      CheckPerExample(objective.loss, what);
    } else {
      CheckWeighted(objective.loss, objective.weights, what);
    }
    const bool accumulates =
        micro_batches_ > 1 && objective.weights.defined() && DividesByWeights();
    weighted = weighted || accumulates;
    // The divisor of weighted sums is known in the last micro-batch. Until then, the gradients of
    // an optimizer may come only from one weighted loss. Regularizers are deferred to the last
    // micro-batch.
    if (micro_batches_ > 1 &&
        ((again && weighted) || (micro_batch_ > 0 && weighted_.contains(index) != accumulates))) {
      throw StatusError(ProgramError(fmt::format(
          "optimizer \"{}\" minimizes losses with weights and others: accumulate_steps above 1 "
          "needs one loss for each optimizer, with weights in all micro-batches or in none",
          NameOf(index))));
    }
  }
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
  if (micro_batches_ > 1 && weighted && !replica_->embeddings().empty()) {
    for (const int index : minimized_)
      if (!Contains(optimizers, index)) optimizers.push_back(index);
    if (optimizers.size() > 1) {
      throw StatusError(ProgramError(
          "a step with embedding tables, weights and accumulate_steps above 1 can minimize for one "
          "optimizer only: the gradients of rows have one divisor"));
    }
  }
}

at::Tensor StepImpl::Plain(const at::Tensor& per_example) {
  // The objective is summed in double until the reduction, because a float32 sum over a large batch
  // loses digits.
  Add(&objective_sum_, WideSum(per_example) * LossScale());
  return Wide(per_example).sum() * LossScale();
}

std::vector<double> StepImpl::WeightScales(const std::vector<Objective>& objectives) {
  const bool last = micro_batch_ + 1 == micro_batches_;
  std::vector<double> scales(objectives.size(), 0.0);
  std::vector<size_t> divided;  // Indices of the objectives that are divided.
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < objectives.size(); ++i) {
    const Objective& objective = objectives[i];
    if (!objective.weights.defined()) continue;
    if (!DividesByWeights()) {
      scales[i] = NominalScale(objective.loss);
      continue;
    }
    at::Tensor sum = WideSum(objective.weights);
    if (micro_batches_ > 1) {
      WeightedSum& so_far = weighted_[objective.optimizer.index];
      Add(&so_far.weights, sum);
      if (last) sum = so_far.weights;
    }
    divided.push_back(i);
    sums.push_back(sum);
  }
  if (divided.empty()) return scales;
  at::Tensor all = at::stack(sums).contiguous();
  if (last && WeightsOverReplicas()) collectives_->Sum(&all);
  all = all.to(at::kCPU);
  for (size_t d = 0; d < divided.size(); ++d) {
    const double sum = all.const_data_ptr<double>()[d];
    const int index = objectives[divided[d]].optimizer.index;
    if (!(sum >= 0) || std::isinf(sum)) {
      throw StatusError(ProgramError(
          fmt::format("the weights of a loss of optimizer \"{}\" sum to {}: they must be finite, "
                      "and none below 0",
                      NameOf(index), sum)));
    }
    double& scale = scales[divided[d]];
    if (last) {
      scale = sum > 0 ? WeightedShare() / sum : 0;
    } else {
      // Uses an estimate of the divisor, so that gradients stay within the range of float16.
      double& provisional = weighted_[index].provisional;
      if (provisional == 0) provisional = sum > 0 ? sum * micro_batches_ * num_replicas() : 1;
      scale = 1 / provisional;
    }
  }
  return scales;
}

// Adds this micro-batch to the weighted loss of an optimizer. Returns the term for the backward
// pass. In the last micro-batch, rescales the earlier gradients to the final divisor.
at::Tensor StepImpl::Accumulated(const Objective& objective, double scale) {
  const int index = objective.optimizer.index;
  WeightedSum& so_far = weighted_[index];
  const at::Tensor weighted = Weighted(Wide(objective.loss), objective.weights);
  Add(&so_far.loss, WideSum(weighted));
  if (micro_batch_ + 1 < micro_batches_) return weighted.sum() * scale;
  if (so_far.provisional > 0) {
    replica_->optimizers()[index].gradients->Scale(so_far.provisional * scale);
    embeddings_.Scale(so_far.provisional * scale);
  }
  Add(&objective_sum_, so_far.loss * scale);
  at::Tensor term = weighted.sum() * scale;
  for (const at::Tensor& regularizer : so_far.regularizers) term = term + regularizer;
  so_far.regularizers.clear();
  return term;
}

void StepImpl::AddExtras(Goal* goal) {
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
    const at::Tensor share = extra.loss / (static_cast<double>(num_replicas()) * micro_batches_);
    Add(&objective_sum_, share.detach().to(at::kDouble));
    if (held != weighted_.end() && micro_batch_ + 1 < micro_batches_) {
      held->second.regularizers.push_back(share);
    } else {
      goal->Add(share);
    }
  }
  std::erase_if(extra_losses_, mine);
  std::erase_if(regularizers_, mine);
}

std::vector<StepImpl::Goal> StepImpl::Goals(const std::vector<Objective>& objectives) {
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
    } else if (micro_batches_ > 1 && DividesByWeights()) {
      goal->Add(Accumulated(objective, scales[i]));
    } else {
      const at::Tensor weighted = Weighted(Wide(objective.loss), objective.weights);
      Add(&objective_sum_, WideSum(weighted) * scales[i]);
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

void StepImpl::Minimize(const std::vector<Objective>& objectives) {
  RefuseRepeated("minimize");
  CheckObjectives(objectives);
  if (!immediate_ && !minimized_.empty() &&
      replica_->optimizers()[minimized_.back()].gradients->launched()) {
    SwitchToImmediate();
  }
  if (!immediate_ && !minimized_.empty()) {
    start_again_ = true;
    throw StatusError(
        ProgramError("minimize was called a second time in this step"));  // Run handles it.
  }
  std::vector<int> optimizers;
  for (const Objective& objective : objectives) {
    const int index = objective.optimizer.index;
    if (Contains(optimizers, index)) continue;
    optimizers.push_back(index);
    if (micro_batches_ > 1 && Contains(minimized_, index)) {
      throw StatusError(ProgramError(
          fmt::format("optimizer \"{}\" is minimized twice in one micro-batch: "
                      "accumulate_steps above 1 cannot say which calls belong together",
                      NameOf(index))));
    }
    shape_ += fmt::format("{}{}", optimizers.size() == 1 ? "m" : ",", index);
  }
  shape_ += ";";
  minimized_.insert(minimized_.end(), optimizers.begin(), optimizers.end());
  const std::vector<Goal> goals = Goals(objectives);
  ForwardEnds();
  if (LossGraph* const graph = LossGraph::Current(); graph != nullptr && micro_batch_ == 0)
    for (const Goal& goal : goals) graph->Add({NameOf(goal.optimizer), goal.objective});
  for (const Goal& goal : goals) Backward(goal, immediate_ || &goal != &goals.back());
  ForwardBegins();
  if (micro_batch_ + 1 < micro_batches_) return;
  if (immediate_) {
    UpdateNow(optimizers);
  } else {
    deferred_ = optimizers;
  }
}

bool StepImpl::TrainsAnything(int index) const {
  const auto& candidates = replica_->optimizers()[index].candidates;
  return !replica_->embeddings().empty() ||
         std::any_of(candidates.begin(), candidates.end(),
                     [](const at::Tensor& p) { return p.requires_grad(); });
}

void StepImpl::UpdateNow(const std::vector<int>& optimizers) {
  if (!state_saved_ && !on_servers()) {
    // Makes the list again, because slots may have been added since the previous step.
    state_ = replica_->state();
    if (state_undo_.size() != state_.size()) {
      state_undo_ = Clone(state_);
    } else {
      CopyBack(state_, state_undo_);
    }
    // If a rule is replaced by one for more parameters, its slots must stay for a roll-back.
    replica_->RetainRules(true);
    state_saved_ = true;
  }
  at::Tensor none;
  ThrowIfError(Reduce(optimizers, &none));
  ThrowIfError(Update(optimizers));
  updated_.insert(updated_.end(), optimizers.begin(), optimizers.end());
  collectives_->ForgetOutputs();
  // Autocast caches casts of weights by tensor, not by version. Later losses of this step must see
  // the update.
  if (job_.precision != Precision::kFloat32) at::autocast::clear_cache();
}

void StepImpl::SwitchToImmediate() {
  immediate_ = true;
  at::Tensor none;
  ThrowIfError(Reduce(deferred_, &none));
  updated_ = std::exchange(deferred_, {});
}

void StepImpl::Backward(const Goal& goal, bool keep_graph) {
  const Span span("backward");
  NamedOptimizer& optimizer = replica_->optimizers()[goal.optimizer];
  const bool first = micro_batch_ == 0, last = micro_batch_ + 1 == micro_batches_;
  if (first) {
    ThrowIfError(replica_->FollowProgram(goal.optimizer));
  } else {
    CheckNotUnfrozen(optimizer);
  }
  std::vector<at::Tensor> inputs = Inputs(optimizer);
  embeddings_.AddLeaves(&inputs);
  // A program with one optimizer usually calls minimize() once in each step, as in its first step.
  const bool early = immediate_ || (settled_ && replica_->optimizers().size() == 1);
  if (first)
    optimizer.gradients->Begin(
        {optimizer.schedule->At(plan_.steps_done), early, /*norm=*/plan_.summary});
  optimizer.gradients->BeginBackward(last, /*overlap=*/settled_ && !collectives_->used());
  std::vector<at::Tensor> roots = {goal.objective};
  std::vector<at::Tensor> seeds = {at::full_like(goal.objective, scaler_.scale())};
  for (const at::Tensor& output : collectives_->outputs()) {
    roots.push_back(output);
    seeds.push_back(at::zeros_like(output));
  }
  replica_->set_active(goal.optimizer);
  try {
    const AutocastOff off(replica_->device());
    // `inputs` is empty if all parameters of the optimizer are frozen. backward() would then use
    // every leaf.
    if (!inputs.empty())
      torch::autograd::backward(roots, seeds, keep_graph, /*create_graph=*/false, inputs);
  } catch (const c10::Error& error) {
    replica_->set_active(-1);
    const std::string_view what = error.what_without_backtrace();
    if (updated_.empty() || what.find("modified by an inplace operation") == what.npos) throw;
    const std::string& before = NameOf(updated_.back());
    throw StatusError(ProgramError(fmt::format(
        "the loss of optimizer \"{0}\" was computed before the update of optimizer \"{1}\", and "
        "depends on what that changed: minimize both in one call, minimize({{{{{1}, its loss}}, "
        "{{{0}, its loss}}}}), or compute this loss after that update",
        optimizer.name, before)));
  } catch (...) {
    replica_->set_active(-1);
    throw;
  }
  replica_->set_active(-1);
  optimizer.gradients->EndBackward();
  embeddings_.Collect();
}

}  // namespace muster
