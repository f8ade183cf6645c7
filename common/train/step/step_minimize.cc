// minimize() of a program, in the two modes of a step.
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/train/step/losses/loss_graph.h"
#include "common/train/step/step_impl.h"

namespace muster {

void StepImpl::Minimize(const std::vector<Objective>& objectives) {
  RefuseRepeated("minimize");
  losses_.Check(objectives, minimized_);
  if (!immediate_ && !minimized_.empty() &&
      replica_->optimizers()[minimized_.back()].gradients->launched()) {
    SwitchToImmediate();
  }
  if (!immediate_ && !minimized_.empty()) {
    stage_ = Stage::kStartsAgain;
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

void StepImpl::UpdateNow(const std::vector<int>& optimizers) {
  if (!gradients_.on_servers()) undo_.KeepState();
  at::Tensor none;
  ThrowIfError(gradients_.Reduce(optimizers, &none));
  ThrowIfError(gradients_.Update(optimizers));
  updated_.insert(updated_.end(), optimizers.begin(), optimizers.end());
  collectives_->ForgetOutputs();
  // Autocast caches casts of weights by tensor, not by version. Later losses of this step must see
  // the update.
  if (job_.precision != Precision::kFloat32) at::autocast::clear_cache();
}

void StepImpl::SwitchToImmediate() {
  immediate_ = true;
  at::Tensor none;
  ThrowIfError(gradients_.Reduce(deferred_, &none));
  updated_ = std::exchange(deferred_, {});
}

// Computes the gradients of a goal. If the reason of an error is an earlier update of the step,
// throws an error that says so.
void StepImpl::Backward(const Goal& goal, bool keep_graph) {
  StepGradients::Pass pass;
  pass.first = micro_batch_ == 0;
  pass.last = in_last();
  // A program with one optimizer usually calls minimize() once in each step, as in its first step.
  pass.early = immediate_ || (settled_ && replica_->optimizers().size() == 1);
  pass.overlaps = settled_ && !collectives_->used();
  pass.keep_graph = keep_graph;
  try {
    gradients_.Backward(goal, pass);
  } catch (const c10::Error& error) {
    const std::string_view what = error.what_without_backtrace();
    if (updated_.empty() || what.find("modified by an inplace operation") == what.npos) throw;
    throw StatusError(ProgramError(fmt::format(
        "the loss of optimizer \"{0}\" was computed before the update of optimizer \"{1}\", and "
        "depends on what that changed: minimize both in one call, minimize({{{{{1}, its loss}}, "
        "{{{0}, its loss}}}}), or compute this loss after that update",
        NameOf(goal.optimizer), NameOf(updated_.back()))));
  }
}

}  // namespace muster
