#include "chief/parameter_server/director/director_saves.h"

#include <fmt/format.h>

#include <tuple>

#include "common/base/logging.h"

namespace muster::chief {
namespace {

absl::Status NotSaved(int64_t step, const absl::Status& why) {
  return StatusFor(
      ExitCode::kRetryable,
      fmt::format("the state after step {} could not be saved: {}", step, Message(why)));
}

}  // namespace

DirectorSaves::DirectorSaves(const Parts& parts)
    : parts_(parts),
      cutter_(parts.setup->layout, parts.state, parts.members->links(), parts.sink,
              [members = parts.members] { members->Wake(); }) {}

Duration DirectorSaves::Deadline() const {
  return parts_.job->timeouts.phase[static_cast<int>(Phase::kSave)];
}

// ---- Requests

void DirectorSaves::OfferStep(const CompletedStep& step) {
  // Begin asks for the last checkpoint, which is taken even if the sink does not want it.
  if (parts_.sink == nullptr || step.all_done || wanted_.checkpoint) return;
  SaveMoment moment;
  moment.step = step.step;
  moment.epoch = step.epoch;
  moment.epoch_end = step.epoch_end;
  moment.last = step.all_done;
  moment.busy = !cutter_.idle();
  wanted_.checkpoint = parts_.sink->Wanted(moment);
}

void DirectorSaves::RequestBest(int64_t step, int64_t epoch) {
  if (parts_.sink == nullptr || wanted_.checkpoint) return;
  SaveMoment moment;
  moment.step = step;
  moment.epoch = epoch;
  moment.epoch_end = true;
  moment.validated = true;
  best_requested_ = {moment, Clock::now()};
}

void DirectorSaves::TakeBest() {
  SaveMoment moment = std::exchange(best_requested_, std::nullopt)->first;
  moment.busy = parts_.sink->IsSaving();
  wanted_.checkpoint = parts_.sink->Wanted(moment) || wanted_.checkpoint;
}

void DirectorSaves::TakeRequest() {
  if (!parts_.callbacks->TakeSaveRequest() || parts_.sink == nullptr) return;
  const checkpoint::TrainingState at = DirectorMembers::Lock(parts_.members)->work().state();
  if (parts_.callbacks->IsFinished(at) || parts_.callbacks->stopping())
    return;  // The state is saved anyway.
  SaveMoment moment;
  moment.step = at.step;
  moment.requested = true;
  moment.busy = !cutter_.idle();
  wanted_.checkpoint = parts_.sink->Wanted(moment) || wanted_.checkpoint;
}

void DirectorSaves::Postpone(bool checkpoint) {
  wanted_.checkpoint = checkpoint;
  if (!wanted_.since) wanted_.since = Clock::now();
}

// ---- Cuts

// Returns the request for a cut of the current state, which the ledger of updates gets too. Asks
// the sink about the last checkpoint.
Cut DirectorSaves::MakeCut(bool checkpoint, std::pair<bool, bool> due) {
  const TrainingCallbacks& callbacks = *parts_.callbacks;
  Cut cut;
  bool stopping;
  {
    DirectorMembers::Lock lock(parts_.members);
    stopping = lock->stop_requested();
    cut.state = lock->work().state();
    lock->work().ledger().Cut(cut.state.step);
    for (const ShardPlacement& shard : lock->servers().placements())
      cut.primaries.push_back(shard.primary);
    cut.integers = lock->calls().integers();
  }
  const bool over = callbacks.IsFinished(cut.state) || callbacks.stopping();
  cut.must = (stopping || over) && (!callbacks.exist() || checkpoint);
  cut.for_callbacks = wanted_.weights;
  cut.histograms = wanted_.histograms;
  cut.replaces = over && callbacks.ended();
  std::tie(cut.state.validation_due, cut.state.test_due) = due;
  cut.state.global_batch_size = parts_.setup->global_batch_size;
  cut.state.extras.callbacks = callbacks.record();
  // Counts all steps as begun and ended, because a synchronous run may resume from this checkpoint.
  if (auto& record = cut.state.extras.callbacks)
    record->steps_begun = record->steps_ended = cut.state.step;
  cut.state.extras.finished = callbacks.stopping() && callbacks.ended();
  if (checkpoint) cut.put_back = callbacks.WeightsPutBack();
  cut.write = checkpoint;
  if (!cut.write || !cut.must) return cut;
  SaveMoment moment;
  moment.step = cut.state.step;
  moment.epoch = cut.state.last_epoch();
  moment.epoch_end = cut.state.offset == 0;
  moment.last = over && callbacks.hooks_ended();
  moment.stopping = stopping;
  // May wait for the previous save within its deadline. Drain reports a save that is not wanted.
  cut.write = parts_.sink->Wanted(moment);
  return cut;
}

absl::Status DirectorSaves::Begin(bool checkpoint, std::pair<bool, bool> due) {
  Cut cut = MakeCut(checkpoint, due);
  const bool write = cut.write, must = cut.must;
  const int64_t step = cut.state.step;
  parts_.rollback->RetainWeights();
  if (!wanted_.since) wanted_.since = Clock::now();
  if (const absl::Status begun = cutter_.Begin(std::move(cut)); !begun.ok()) return GiveUp(begun);
  if (write) parts_.reporter->Notify([&](Observer* observer) { observer->OnSave(step); });
  wanted_ = {.since = wanted_.since};
  if (must) saved_ = {step, parts_.callbacks->hooks_ended()};
  return absl::OkStatus();
}

// Retries the cut until the time for a save is over. A cut may fail because a ps task was lost or
// because no task serves a shard. REQUIRES: wanted_.since.
absl::Status DirectorSaves::GiveUp(const absl::Status& why) {
  if (!ShardClient::MayRetry(why)) return why;
  if (Clock::now() - *wanted_.since < Deadline()) {
    parts_.waiting->Log(fmt::format("a copy of all shards ({})", Message(why)));
    return absl::OkStatus();
  }
  DirectorMembers::Lock lock(parts_.members);
  const absl::Status failed = NotSaved(lock->work().steps(), why);
  // Callbacks cannot continue without the weights, because they would only request another cut.
  if (lock->stop_requested() || lock->work().all_done() || parts_.callbacks->stopping() ||
      wanted_.weights)
    return failed;
  LogWarning("{}; training continues", Message(failed));
  wanted_ = Wanted();
  return absl::OkStatus();
}

absl::Status DirectorSaves::Take() {
  if (cutter_.state() != CheckpointCutter::State::kRead) return absl::OkStatus();
  Cut cut = cutter_.Take();
  weights_step_ = -1;  // If the cut was not read completely, the replica has only part of it.
  const bool needed = cut.must || cut.for_callbacks;
  if (needed && ShardClient::MayRetry(cut.status)) {
    wanted_.checkpoint = cut.write;
    wanted_.weights = cut.for_callbacks;
    if (cut.must) saved_ = {};
    return GiveUp(cut.status);
  }
  wanted_.since.reset();
  if (!cut.status.ok()) {
    if (needed) return NotSaved(cut.state.step, cut.status);
    LogWarning("{}; training continues", Message(NotSaved(cut.state.step, cut.status)));
    return absl::OkStatus();
  }
  weights_step_ = cut.state.step;
  return PassOn(std::move(cut));
}

// REQUIRES: the cut was read completely.
absl::Status DirectorSaves::PassOn(Cut cut) {
  if (cut.histograms) parts_.reporter->Parameters(cut.state.step);
  if (cut.write && !cut.unwritten.ok()) {
    const absl::Status failed = Annotate(
        cut.unwritten, fmt::format("the state after step {} could not be saved: ", cut.state.step));
    parts_.sink->Failed(failed);
    return cut.must ? failed : absl::OkStatus();
  }
  if (cut.write) parts_.sink->Save(*std::move(cut.snapshot));
  parts_.rollback->Commit(std::move(cut));
  return absl::OkStatus();
}

void DirectorSaves::Drop() {
  if (!cutter_.idle()) (void)cutter_.Take();
}

// ---- State

void DirectorSaves::Describe(int64_t step, DirectorSituation* now) const {
  now->cutting = !cutter_.idle();
  now->checkpoints = parts_.sink != nullptr;
  now->checkpoint_wanted = wanted_.checkpoint;
  now->histograms_wanted = wanted_.histograms;
  now->weights_wanted = wanted_.weights;
  now->weights_known = weights_step_ == step;
  now->saved = IsSaved(step);
  if (!best_requested_) return;
  // The save of the best state waits while another checkpoint is being written; the director's
  // thread continues meanwhile. After timeouts.phase.save this save is skipped.
  const bool writing = !cutter_.idle() || parts_.sink->IsSaving();
  now->best = writing && Clock::now() - best_requested_->second < Deadline()
                  ? DirectorSituation::Best::kWaits
                  : DirectorSituation::Best::kDue;
}

bool DirectorSaves::HoldsLeases() const {
  const bool wanted = wanted_.checkpoint || wanted_.histograms || wanted_.weights;
  return best_requested_ || (wanted && cutter_.idle());
}

bool DirectorSaves::IsSaved(int64_t step) const {
  const TrainingCallbacks& callbacks = *parts_.callbacks;
  return saved_.step == step && (saved_.ended || !callbacks.exist() || !callbacks.ended());
}

}  // namespace muster::chief
