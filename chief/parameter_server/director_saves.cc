// Requests cuts for checkpoints, takes them and passes them to the sink.
#include <fmt/format.h>

#include "chief/parameter_server/director_impl.h"
#include "common/base/logging.h"

namespace muster::chief {
namespace {

absl::Status NotSaved(int64_t step, const absl::Status& why) {
  return StatusFor(
      ExitCode::kRetryable,
      fmt::format("the state after step {} could not be saved: {}", step, Message(why)));
}

}  // namespace

Duration DirectorImpl::SaveDeadline() const {
  return options_.job.timeouts.phase[static_cast<int>(Phase::kSave)];
}

// Requests a save of the best state so far, whatever the interval of checkpoints is.
void DirectorImpl::RequestBest(int64_t step, int64_t epoch) {
  if (start_.checkpoints == nullptr || wanted_.checkpoint) return;
  SaveMoment moment;
  moment.step = step;
  moment.epoch = epoch;
  moment.epoch_end = true;
  moment.validated = true;
  best_requested_ = {moment, Clock::now()};
}

// A callback asks to save the current state.
void DirectorImpl::RequestSave() {
  if (!callbacks_->TakeSaveRequest() || start_.checkpoints == nullptr) return;
  const checkpoint::TrainingState at = state();
  if (IsFinished(at) || callbacks_->stopping()) return;  // The state is saved anyway.
  SaveMoment moment;
  moment.step = at.step;
  moment.requested = true;
  moment.busy = !cutter_->idle();
  wanted_.checkpoint = start_.checkpoints->Wanted(moment) || wanted_.checkpoint;
}

// REQUIRES: a cut is wanted, no lease is open, all shards are served.
absl::Status DirectorImpl::BeginCut(bool checkpoint) {
  Cut cut;
  bool stopping;
  {
    DirectorMembers::Lock lock(members_.get());
    stopping = lock->stop_requested();
    cut.state = lock->work().state();
    lock->work().ledger().Cut(cut.state.step);
    for (const ShardPlacement& shard : lock->servers().placements())
      cut.primaries.push_back(shard.primary);
    cut.integers = lock->calls().integers();
  }
  const bool over = IsFinished(cut.state) || callbacks_->stopping();
  const bool all_is_done = !callbacks_->exist() || callbacks_->ended();
  cut.must = (stopping || over) && (!callbacks_->exist() || checkpoint);
  cut.for_callbacks = wanted_.weights;
  cut.histograms = wanted_.histograms;
  cut.replaces = over && callbacks_->ended();
  std::tie(cut.state.validation_due, cut.state.test_due) = due_;
  cut.state.global_batch_size = setup_.global_batch_size;
  cut.state.extras.callbacks = callbacks_->record();
  // Counts all steps as begun and ended, because a synchronous run may resume from this checkpoint.
  if (auto& callbacks = cut.state.extras.callbacks)
    callbacks->steps_begun = callbacks->steps_ended = cut.state.step;
  cut.state.extras.finished = callbacks_->stopping() && callbacks_->ended();
  if (checkpoint) cut.put_back = callbacks_->WeightsPutBack();
  cut.write = checkpoint;
  const int64_t step = cut.state.step;
  if (cut.write && cut.must) {
    SaveMoment moment;
    moment.step = step;
    moment.epoch = LastEpoch(cut.state);
    moment.epoch_end = cut.state.offset == 0;
    moment.last = over && all_is_done;
    moment.stopping = stopping;
    // May wait for the previous save within its deadline. Drain reports a save that is not wanted.
    cut.write = start_.checkpoints->Wanted(moment);
  }
  const bool write = cut.write, must = cut.must;
  // Shards may roll back to the replica's weights. RetainWeights keeps weights of one moment, even
  // if the cut is not read completely.
  rollback_->RetainWeights();
  if (!wanted_.since) wanted_.since = Clock::now();
  if (const absl::Status begun = cutter_->Begin(std::move(cut)); !begun.ok())
    return GiveUpCut(begun);
  if (write) reporter_->Notify([&](Observer* observer) { observer->OnSave(step); });
  wanted_ = {.since = wanted_.since};
  if (must) saved_ = {step, all_is_done};
  return absl::OkStatus();
}

// Retries the cut until the time for a save is over. A cut may fail because a ps task was lost or
// because no task serves a shard. REQUIRES: wanted_.since.
absl::Status DirectorImpl::GiveUpCut(const absl::Status& why) {
  if (!ShardClient::MayRetry(why)) return why;
  if (Clock::now() - *wanted_.since < SaveDeadline()) {
    waiting_.Log(fmt::format("a copy of all shards ({})", Message(why)));
    return absl::OkStatus();
  }
  DirectorMembers::Lock lock(members_.get());
  const absl::Status failed = NotSaved(lock->work().steps(), why);
  // Callbacks cannot continue without the weights, because they would only request another cut.
  if (lock->stop_requested() || lock->work().all_done() || callbacks_->stopping() ||
      wanted_.weights)
    return failed;
  LogWarning("{}; training goes on", Message(failed));
  wanted_ = Wanted();
  return absl::OkStatus();
}

// Takes the result of the cut once the cutter has read it.
absl::Status DirectorImpl::TakeCut() {
  if (cutter_->state() != CheckpointCutter::State::kRead) return absl::OkStatus();
  Cut cut = cutter_->Take();
  weights_step_ = -1;  // If the cut was not read completely, the replica has only part of it.
  const bool needed = cut.must || cut.for_callbacks;
  if (needed && ShardClient::MayRetry(cut.status)) {
    wanted_.checkpoint = cut.write;
    wanted_.weights = cut.for_callbacks;
    if (cut.must) saved_ = {};
    return GiveUpCut(cut.status);
  }
  wanted_.since.reset();
  if (!cut.status.ok()) {
    if (needed) return NotSaved(cut.state.step, cut.status);
    LogWarning("{}; training goes on", Message(NotSaved(cut.state.step, cut.status)));
    return absl::OkStatus();
  }
  weights_step_ = cut.state.step;
  if (cut.histograms) reporter_->Parameters(cut.state.step);
  if (cut.write && !cut.unwritten.ok()) {
    const absl::Status failed = Annotate(
        cut.unwritten, fmt::format("the state after step {} could not be saved: ", cut.state.step));
    start_.checkpoints->Failed(failed);
    return cut.must ? failed : absl::OkStatus();
  }
  if (cut.write) start_.checkpoints->Save(*std::move(cut.snapshot));
  rollback_->Commit(std::move(cut));
  return absl::OkStatus();
}

}  // namespace muster::chief
