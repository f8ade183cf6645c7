// minimize() of a program: backward passes, and in immediate mode the updates.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/flight/spans.h"
#include "common/train/step/loss_graph.h"
#include "common/train/step/step_impl.h"

namespace muster {
namespace {

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

void StepImpl::Minimize(const std::vector<Objective>& objectives) {
  RefuseRepeated("minimize");
  losses_.Check(objectives, minimized_);
  if (!immediate_ && !minimized_.empty() &&
      replica_->optimizers()[minimized_.back()].gradients->launched()) {
    SwitchToImmediate();
  }
  if (!immediate_ && !minimized_.empty()) {
    start_again_ = true;
    throw StatusError(
        ProgramError("minimize was called a second time in this step"));  // Run handles it.
  }
  const std::vector<int> optimizers = OptimizersOf(objectives);
  control_.NoteMinimize(optimizers);
  minimized_.insert(minimized_.end(), optimizers.begin(), optimizers.end());
  const std::vector<Goal> goals = losses_.Goals(objectives);
  ForwardEnds();
  if (LossGraph* const graph = LossGraph::Current(); graph != nullptr && micro_batch_ == 0)
    for (const Goal& goal : goals) graph->Add({NameOf(goal.optimizer), goal.objective});
  for (const Goal& goal : goals) Rescale(goal);
  for (const Goal& goal : goals) Backward(goal, immediate_ || &goal != &goals.back());
  ForwardBegins();
  if (!in_last()) return;
  if (immediate_) {
    UpdateNow(optimizers);
  } else {
    deferred_ = optimizers;
  }
}

std::vector<int> StepImpl::OptimizersOf(const std::vector<Objective>& objectives) const {
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
  }
  return optimizers;
}

void StepImpl::Rescale(const Goal& goal) {
  if (!goal.rescale) return;
  replica_->optimizers()[goal.optimizer].gradients->Scale(*goal.rescale);
  embeddings_.Scale(*goal.rescale);
}

void StepImpl::UpdateNow(const std::vector<int>& optimizers) {
  if (!on_servers()) undo_.KeepState();
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

// Returns the error for a backward pass that failed with `what`, if the reason is an earlier update
// of the step. Otherwise returns OK.
absl::Status StepImpl::StaleGraphError(const std::string& optimizer, std::string_view what) const {
  if (updated_.empty() || what.find("modified by an inplace operation") == what.npos)
    return absl::OkStatus();
  return ProgramError(fmt::format(
      "the loss of optimizer \"{0}\" was computed before the update of optimizer \"{1}\", and "
      "depends on what that changed: minimize both in one call, minimize({{{{{1}, its loss}}, "
      "{{{0}, its loss}}}}), or compute this loss after that update",
      optimizer, NameOf(updated_.back())));
}

void StepImpl::Backward(const Goal& goal, bool keep_graph) {
  const Span span("backward");
  NamedOptimizer& optimizer = replica_->optimizers()[goal.optimizer];
  const bool first = micro_batch_ == 0;
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
  optimizer.gradients->BeginBackward(in_last(), /*overlap=*/settled_ && !collectives_->used());
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
    ThrowIfError(StaleGraphError(optimizer.name, error.what_without_backtrace()));
    throw;
  } catch (...) {
    replica_->set_active(-1);
    throw;
  }
  replica_->set_active(-1);
  optimizer.gradients->EndBackward();
  embeddings_.Collect();
}

}  // namespace muster
