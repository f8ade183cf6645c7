// The interface between the training loop and the checkpoint writer. The chief implements
// CheckpointSink. The loop of rank 0's first replica calls it at step boundaries. All replicas hold
// the same state there, so no other replica takes part.
#pragma once

#include <memory>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct SaveMoment {
  int64_t step = 0;        // Completed steps.
  int64_t epoch = 0;       // Epoch of the step, from 0.
  bool epoch_end = false;  // The step was the last one of its epoch.
  bool last = false;       // The job's last step: a final checkpoint, regardless of the intervals.
  bool stopping = false;   // After an agreed stop: saved regardless of the intervals.
  bool requested = false;  // A callback requested the save.
  bool busy = false;       // The previous state is still being read, so this one cannot be saved.
  bool validated = false;  // The metric that selects the best checkpoint is known at this step. The
                           // state is wanted if it is the best so far.
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  // Returns whether the sink wants this state. Cheap. Called after each committed step, and again
  // after its validation pass if the step is not saved. While the previous save is in progress,
  // returns false except for `last`, `stopping` and the best state so far. For these it waits for
  // the previous save, within the sink's deadline.
  virtual bool Wanted(const SaveMoment& moment) = 0;
  // Returns true while the previous save is in progress, so that Wanted may have to wait.
  virtual bool IsSaving() const { return false; }
  // Opens a file of the next checkpoint for data larger than memory. See Store::StageFile.
  virtual absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& /*name*/) {
    return absl::FailedPreconditionError("nothing is written");
  }
  // Takes ownership of the snapshot, fills in its run_id, job and versions, and returns. A thread
  // of the sink writes it. The sink reports errors of the write.
  virtual void Save(checkpoint::Snapshot snapshot) = 0;
  // Called if a wanted checkpoint is not handed over because its files could not be written.
  virtual void Failed(const absl::Status& /*why*/) {}
  // Returns Superseded if another process owns model_dir. This process must not write there any
  // more then.
  virtual absl::Status CheckOwner() const { return absl::OkStatus(); }
  // Blocks until every snapshot that was handed over is published or has failed. Returns the status
  // of the last save.
  virtual absl::Status Drain() = 0;
};

}  // namespace muster
