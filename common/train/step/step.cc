#include "common/train/step/step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/base/short_list.h"
#include "common/data/pipeline.h"
#include "common/flight/spans.h"
#include "common/train/step/losses/loss_graph.h"
#include "common/train/step/step_impl.h"

namespace muster {
namespace {

// Logs the parameters of an optimizer without a gradient in the first step. This is not an error,
// because it may be intended. Typical mistakes are a layer that forward() does not use, and a
// custom autograd function that breaks the graph.
void LogUnused(const NamedOptimizer& optimizer) {
  std::vector<std::string> names;
  for (size_t i = 0; i < optimizer.parameter_names.size(); ++i) {
    if (!optimizer.gradients->used(static_cast<int>(i)) &&
        optimizer.rule->parameters()[i].requires_grad())
      names.push_back(optimizer.parameter_names[i]);
  }
  if (names.empty()) return;
  LogWarning(
      "{} of the {} parameters of optimizer \"{}\" got no gradient in the first step, and are "
      "updated only in steps where they get one: {}",
      names.size(), optimizer.parameter_names.size(), optimizer.name, ShortList(names, 8));
}

}  // namespace

LossWeights StepImpl::Weights() const {
  LossWeights weights;
  weights.reduction = job_.loss_reduction;
  weights.num_replicas = num_replicas();
  weights.reduces = communicator_->size() > 1;
  weights.global_batch_size = options_.global_batch_size;
  weights.global_examples = plan_.global_examples;
  weights.local_examples = local_examples_;
  return weights;
}

void StepImpl::Reset() {
  embeddings_.Begin();
  const LossWeights weights = Weights();
  gradients_.Begin(plan_);
  losses_.Begin(weights);
  control_.Begin(weights);
  deferred_.clear();
  updated_.clear();
  collectives_->Begin();
  on_commit_.clear();
  summary_ = {};
  if (LossGraph* const graph = LossGraph::Current()) graph->Clear();
  undo_.DropState();
  stage_ = Stage::kOpen;
}

// The gradients of an optimizer are complete only if every micro-batch has added its part.
absl::Status StepImpl::CheckMinimized(const std::vector<int>& first) const {
  if (minimized_ == first) return absl::OkStatus();
  const auto names = [this](const std::vector<int>& optimizers) {
    std::string text;
    for (const int o : optimizers) text += (text.empty() ? "\"" : ", \"") + NameOf(o) + '"';
    return text.empty() ? std::string("none") : text;
  };
  return ProgramError(
      fmt::format("with accumulate_steps {}, all micro-batches of a step minimize for the same "
                  "optimizers in the "
                  "same order: the first did so for {}, number {} for {}",
                  micro_batches_, names(first), micro_batch_ + 1, names(minimized_)));
}

absl::Status StepImpl::RunMicroBatches(const data::Batch& batch, const Body& body) {
  std::vector<int> first;
  for (micro_batch_ = 0; micro_batch_ < micro_batches_; ++micro_batch_) {
    const data::Slice slice = data::ReplicaSlice(0, local_examples_, micro_batch_, micro_batches_);
    micro_examples_ = slice.size();
    data::Batch part = batch;
    if (micro_batches_ > 1) {
      for (at::Tensor& t : part) t = t.narrow(0, slice.begin, slice.size());
    }
    minimized_.clear();
    losses_.BeginMicroBatch(micro_batch_, micro_batches_, micro_examples_);
    embeddings_.BeginMicroBatch();
    collectives_->ForgetOutputs();
    random_.BeginMicroBatch(plan_.steps_done, micro_batch_);
    const Scope current(this);
    AutocastScope autocast(job_.precision, replica_->device());
    Step step(this);
    const Span span("train_step");
    ForwardBegins();
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("train_step", [&] { body(step, part); }));
    MUSTER_RETURN_IF_ERROR(random_.CheckNothingDrawn());
    if (losses_.has_unused_extras()) {
      return ProgramError(
          "add_loss or regularize was called after the last minimize() of the step, or for an "
          "optimizer that was not minimized after it: nothing minimizes it");
    }
    if (micro_batch_ == 0) first = minimized_;
    MUSTER_RETURN_IF_ERROR(CheckMinimized(first));
  }
  return absl::OkStatus();
}

void StepImpl::WarnOfUnused() const {
  for (int o = 0; o < static_cast<int>(replica_->optimizers().size()); ++o)
    if (Contains(deferred_, o) || Contains(updated_, o)) LogUnused(replica_->optimizers()[o]);
}

absl::StatusOr<StepResult> StepImpl::Run(const StepPlan& plan, const data::Batch& batch,
                                         int64_t local_examples, const Body& body) {
  const MonotonicTime start = Clock::now();
  Enter(Phase::kForward);
  plan_ = plan;
  local_examples_ = local_examples;
  micro_batches_ = static_cast<int>(job_.accumulate_steps);
  gradients_.ResetWait();
  undo_.Begin();
  StepResult result;
  Reset();
  absl::Status status = RunMicroBatches(batch, body);
  if (stage_ == Stage::kStartsAgain) {
    // The program may have set requires_grad by data that it does not receive a second time.
    status =
        CatchProgramErrors("taking the step back", [&] { undo_.PutBack(/*keeps_flags=*/true); });
    immediate_ = true;
    Reset();
    if (status.ok()) status = RunMicroBatches(batch, body);
  }
  if (status.ok()) status = CatchProgramErrors("the step", [&] { ThrowIfError(Commit(&result)); });
  collectives_->End();
  if (!status.ok()) {
    // A peer may never launch the buckets that this replica has launched, so they are aborted.
    // After the commit, a step is not rolled back.
    if (communicator_->size() > 1) communicator_->Abort(PeerLost(Message(status)));
    return stage_ == Stage::kCommitted ? status : TakeBack(status);
  }
  result.wait_seconds = gradients_.wait_seconds();
  result.compute_seconds = Seconds(Clock::now() - start) - result.wait_seconds;
  return result;
}

absl::Status StepImpl::Commit(StepResult* result) {
  MUSTER_RETURN_IF_ERROR(gradients_.ExchangeRows());
  at::Tensor control = control_.Make(
      {losses_.objective_sum(), options_.first_local && plan_.stop_requested, plan_.input_seconds});
  if (!deferred_.empty() &&
      control.numel() > replica_->optimizers()[deferred_.back()].gradients->control_capacity()) {
    at::Tensor none;
    MUSTER_RETURN_IF_ERROR(gradients_.Reduce(deferred_, &none));
    MUSTER_RETURN_IF_ERROR(gradients_.Reduce({}, &control));
  } else {
    MUSTER_RETURN_IF_ERROR(gradients_.Reduce(deferred_, &control));
  }
  Enter(Phase::kUpdate);
  MUSTER_RETURN_IF_ERROR(control_.Read(control, result));
  // From here on, every replica commits.
  if (plan_.steps_done == 0 && replica() == 0 && options_.first_local) WarnOfUnused();
  stage_ = Stage::kCommitted;
  settled_ = true;
  replica_->optimizer_set().RetainRules(false);
  MUSTER_RETURN_IF_ERROR(gradients_.Commit(deferred_));
  gradients_.End(result);
  result->summary = std::move(summary_);
  return CatchProgramErrors("on_commit", [&] {
    at::NoGradGuard no_grad;
    for (const auto& action : on_commit_) action();
    if (on_commit_.empty()) return;
    // In the central_storage strategy, the variables must receive the program's changes.
    for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  });
}

// Rolls back after the error `why` and returns it. A device that has failed permanently also fails
// here. The error then also marks this process's state as lost.
absl::Status StepImpl::TakeBack(const absl::Status& why) {
  // Restores requires_grad, because a repeated step freezes and unfreezes again.
  const absl::Status undone =
      CatchProgramErrors("taking the step back", [&] { undo_.PutBack(/*keeps_flags=*/false); });
  if (undone.ok() || IsProcessFault(why) || ExitCodeOf(why) != ExitCode::kRetryable) return why;
  return ProcessFault(fmt::format("{}; then {}", Message(why), Message(undone)),
                      /*uncertain=*/false);
}

std::unique_ptr<StepRunner> StepRunner::Make(Replica* replica,
                                             collective::Communicator* communicator, const Job& job,
                                             StepRunnerOptions options) {
  return std::make_unique<StepImpl>(replica, communicator, job, std::move(options));
}

}  // namespace muster
