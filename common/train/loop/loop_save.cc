#include "common/train/loop/loop_save.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/logging.h"
#include "common/flight/spans.h"

namespace muster {

absl::Status SaveError(int64_t step, const absl::Status& why) {
  return StatusFor(
      ExitCode::kRetryable,
      fmt::format("the state after step {} could not be saved: {}", step, Message(why)));
}

namespace {

SaveMoment MomentOf(const LoopReplica& loop, const SaveRequest& request) {
  const LoopState& state = loop.state;
  SaveMoment moment;
  moment.step = state.step;
  moment.epoch = state.last_epoch();
  moment.epoch_end = state.epoch_begins();
  moment.last = loop.IsFinished() && (!state.extras.callbacks || state.extras.callbacks->ended);
  moment.stopping = request.stopping;
  moment.requested = request.requested;
  moment.validated = request.best || state.last_passes.contains(SplitName(Split::kValidation));
  return moment;
}

// Returns true if the state is saved regardless of the intervals.
bool MustSave(const SaveMoment& moment) { return moment.last || moment.stopping; }

bool IsWanted(const LoopReplica& loop, const SaveMoment& moment) {
  // Wanted may block until the previous save ends.
  if (MustSave(moment) || moment.validated) loop.Enter(Phase::kSave);
  const bool wanted = loop.context.checkpoints->Wanted(moment);
  if (!wanted && moment.validated) loop.Enter(Phase::kForward);
  return wanted;
}

// Returns true if the hooks and the passes at the end of training are complete.
bool EndIsComplete(const LoopState& state) {
  return state.extras.callbacks && state.extras.callbacks->ended && !state.validation_due &&
         !state.test_due;
}

// Passes a snapshot to the sink. `own` has the kPerReplica buffers of all replicas.
void TakeAndSave(const LoopReplica& loop, const SaveMoment& moment, StackedBuffers own) {
  LoopState& state = loop.state;
  auto snapshot = loop.context.snapshots->Take(*loop.replica, state, own);
  state.save_due = -1;
  if (snapshot.ok()) {
    // A checkpoint of this step that was saved before the hooks at the end of training is not
    // final. This one replaces it.
    snapshot->replaces =
        moment.last && state.extras.callbacks && state.end_saved_step != state.step;
    loop.context.checkpoints->Save(*std::move(snapshot));
    state.saved_step = state.step;
    if (moment.last && EndIsComplete(state)) state.end_saved_step = state.step;
    *loop.context.kept = std::move(own);
  } else if (MustSave(moment)) {
    throw StatusError(SaveError(state.step, snapshot.status()));
  } else {
    LogWarning("{}; training continues", Message(SaveError(state.step, snapshot.status())));
  }
}

}  // namespace

void SaveIfWanted(const LoopReplica& loop, const SaveRequest& request, const LoopReports& reports) {
  LoopState& state = loop.state;
  const SaveMoment moment = MomentOf(loop, request);
  bool wanted = false;
  if ((request.again || state.save_due == state.step) && loop.reporter() &&
      loop.context.checkpoints != nullptr)
    wanted = IsWanted(loop, moment);
  if (wanted) state.save_due = state.step;
  // kPerReplica buffers differ between replicas, so all replicas take part in saving them. They
  // wait for rank 0's decision.
  const bool gathers = !loop.replica->replica_buffers().empty();
  if (gathers) loop.Enter(MustSave(moment) ? Phase::kSave : Phase::kReduce);
  absl::StatusOr<StackedBuffers> own =
      GatherReplicaBuffers(*loop.replica, loop.communicator, &wanted);
  if (!own.ok()) throw StatusError(own.status());
  if (wanted) ThrowIfError(loop.replica->CheckNothingRegisteredLate());
  if (!wanted || !loop.reporter()) {
    if (gathers) loop.Enter(Phase::kForward);
    return;
  }
  loop.Enter(Phase::kSave);
  const Span span("snapshot");
  reports.SaveBegins();
  TakeAndSave(loop, moment, *std::move(own));
  loop.Enter(Phase::kForward);
}

}  // namespace muster
