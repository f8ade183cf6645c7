// The chief implements this interface. Through it, the training loop passes its state to the writer
// of checkpoints. A replica is one device's copy of the model, with its own thread. The first
// replica of rank 0 calls a CheckpointSink after a step, when all replicas have the same state. No
// other replica calls the sink.
#pragma once

#include <memory>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// The state that may be saved.
struct SaveMoment {
  int64_t step = 0;        // Completed steps.
  int64_t epoch = 0;       // The epoch of step number `step`, from 0.
  bool epoch_end = false;  // True if the step was the last of its epoch.
  // True for the final state of the job. The sink wants it regardless of the job's save intervals.
  bool last = false;
  // True if the job stops on request. The sink wants the state regardless of the save intervals.
  bool stopping = false;
  bool requested = false;  // True if a callback requested the save.
  // True if a parameter-server job is still reading or writing the previous state. The sink then
  // wants this state only if `last` or `stopping` is true.
  bool busy = false;
  // True if the metric that selects the best checkpoint is known at this step. The sink then wants
  // the state if it is the best one so far.
  bool validated = false;
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  // Returns true if the sink wants to save this state. Called after each completed step. If the
  // result is false, called again after the validation pass of the step. Usually returns at once,
  // and returns false while the previous save is in progress. There is one exception. If `last` or
  // `stopping` is true, or if the state is the best so far, the call blocks until the previous save
  // ends or the sink's deadline passes.
  virtual bool Wanted(const SaveMoment& moment) = 0;
  // Returns true while a save is in progress. During a save, Wanted may block.
  virtual bool IsSaving() const { return false; }
  // Opens a file of the next checkpoint, for data that is larger than memory. A sink that writes
  // checkpoints calls Store::StageFile.
  virtual absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& /*name*/) {
    return absl::FailedPreconditionError("nothing is written");
  }
  // Takes the snapshot, a copy of the state, and returns. The sink sets the fields run_id, job and
  // versions of the snapshot. It writes the snapshot in a thread of its own, and reports errors of
  // the write.
  virtual void Save(checkpoint::Snapshot snapshot) = 0;
  // Called instead of Save if the files opened with StageFile could not be written.
  virtual void Failed(const absl::Status& /*why*/) {}
  // Returns Superseded if another process owns model_dir now. This process must then no longer
  // write to model_dir.
  virtual absl::Status CheckOwner() const { return absl::OkStatus(); }
  // Blocks until each snapshot passed to Save is complete in model_dir or has failed. Returns the
  // status of the last save.
  virtual absl::Status Drain() = 0;
};

}  // namespace muster
