// Saves the state of a replica's loop, if the checkpoint sink wants it.
#pragma once

#include "common/train/loop/loop_context.h"
#include "common/train/loop/loop_reports.h"

namespace muster {

struct SaveRequest {
  // False if this process has already saved the state of this step. The state is then saved only if
  // the sink wanted it before and has not received it.
  bool again = true;
  // True if the epoch's training metrics are known and select the best checkpoint.
  bool best = false;
  bool stopping = false;   // The job stops on request after this step.
  bool requested = false;  // A callback requested the save.
};

// Saves the state after the last step, if the sink wants it. Called by all replicas of the
// generation. The reporter asks the sink and takes the snapshot; only its `again` counts, and the
// other fields are equal in all replicas. All replicas send it their kPerReplica buffers, if the
// program has any. Throws StatusError. Without memory for the snapshot, throws SaveError for the
// last state of the job or before a stop, and otherwise logs a warning. Sets save_due, saved_step
// and end_saved_step of the LoopState. REQUIRES: LoopCallbacks::TakeOver was called.
void SaveIfWanted(const LoopReplica& loop, const SaveRequest& request, const LoopReports& reports);

// Returns the retryable error for a job that must save its state after `step` and cannot.
absl::Status SaveError(int64_t step, const absl::Status& why);

}  // namespace muster
