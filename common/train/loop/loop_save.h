// Saves the training state if the checkpoint sink wants it. The sink (state/checkpointing.h) is the
// writer of checkpoints. A replica is one device's copy of the model. The reporter is the first
// replica of rank 0.
#pragma once

#include "common/train/loop/loop_context.h"
#include "common/train/loop/loop_reports.h"

namespace muster {

struct SaveRequest {
  // True if the reporter asks the sink whether the sink wants the state. If false, the reporter
  // asks only if the sink wanted the same state in an earlier call and has not received this state.
  // Only the reporter's value is used. The other fields are equal on all replicas.
  bool again = true;
  // True if the step ends an epoch, and the metric that selects the job's best checkpoint is known.
  // This metric may be a training metric or a validation metric.
  bool best = false;
  bool stopping = false;   // True if the job stops on request after this step.
  bool requested = false;  // True if a callback requested the save.
};

// Saves the current state (the state after the newest completed step) if the sink wants it. Called
// by all replicas of a generation (a period of training with fixed members). The reporter asks the
// sink, copies the state and gives the copy to the sink. All other replicas send the reporter their
// kPerReplica buffers (replica/replica_buffers.h). Sets save_due, saved_step and end_saved_step of
// the LoopState.
//
// Throws StatusError. If the state cannot be copied, for example because memory is short, throws
// the status of SaveError in two cases: the state is the job's final one, or the job stops on
// request. If the copy fails in any other case, logs a warning and continues.
//
// REQUIRES: LoopCallbacks::TakeOver was called.
void SaveIfWanted(const LoopReplica& loop, const SaveRequest& request, const LoopReports& reports);

// Returns the error for a job that must save its state after `step`, but cannot save it. The error
// is retryable: a restart of the task may succeed.
absl::Status SaveError(int64_t step, const absl::Status& why);

}  // namespace muster
