// The interface between the training loop and the writer of checkpoints. The chief implements
// CheckpointSink. The loop of rank 0's first replica calls it after a step, when all replicas have
// the same state. No other replica takes part.
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
  bool last = false;  // This is the job's final state. It is saved regardless of the intervals.
  // The job stops on request. The state is saved regardless of the intervals.
  bool stopping = false;
  bool requested = false;  // A callback requested the save.
  bool busy = false;       // The previous state is still being read. This one cannot be saved.
  // The metric that selects the best checkpoint is known at this step. The sink wants the state if
  // it is the best so far.
  bool validated = false;
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  // Returns true if the sink wants this state. Called after each committed step. Called again after
  // the step's validation pass if the step is not saved. Usually cheap. While the previous save is
  // in progress, usually returns false. For `last`, `stopping` and the best state so far, it blocks
  // until that save ends, within the sink's deadline.
  virtual bool Wanted(const SaveMoment& moment) = 0;
  // Returns true while the previous save is in progress. Wanted may then block.
  virtual bool IsSaving() const { return false; }
  // Opens a file of the next checkpoint, for data that is larger than memory. See Store::StageFile.
  virtual absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& /*name*/) {
    return absl::FailedPreconditionError("nothing is written");
  }
  // Takes the snapshot and returns. The sink sets its run_id, job and versions, writes it in a
  // thread of its own, and reports errors of the write.
  virtual void Save(checkpoint::Snapshot snapshot) = 0;
  // Called instead of Save if the files of a wanted checkpoint could not be written.
  virtual void Failed(const absl::Status& /*why*/) {}
  // Returns Superseded if another process owns model_dir. This process must then no longer write to
  // it.
  virtual absl::Status CheckOwner() const { return absl::OkStatus(); }
  // Blocks until each saved snapshot is published or has failed. Returns the status of the last
  // save.
  virtual absl::Status Drain() = 0;
};

}  // namespace muster
