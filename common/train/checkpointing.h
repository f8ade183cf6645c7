// Between the training loop and whoever writes checkpoints: the chief implements CheckpointSink,
// the loop of rank 0's first replica calls it at step boundaries. Everybody holds the same state
// there, so nobody else takes part.
#pragma once

#include <memory>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct SaveMoment {
  int64_t step = 0;        // done
  int64_t epoch = 0;       // of the step, from 0
  bool epoch_end = false;  // that was the epoch's last one
  bool last = false;       // of the job: a final checkpoint, whatever the intervals say
  bool stopping = false;   // an agreed stop: likewise
  bool requested = false;  // a callback asked for it
  bool busy = false;       // the state before is still being read: this one cannot be taken
  bool validated = false;  // what the best goes by is known at this step: wanted if it is better
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  // After each committed step, and again after its validation pass where the step is not saved;
  // cheap. False also where the save before is still being made, unless `last`, `stopping` or the
  // best so far: then it waits for that one, within its deadline.
  virtual bool Wanted(const SaveMoment& moment) = 0;
  // Whether Wanted may have to wait now: the save before is still being made.
  virtual bool IsSaving() const { return false; }
  // Begins a file of the next checkpoint, for what is larger than memory: as Store::StageFile.
  virtual absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& /*name*/) {
    return absl::FailedPreconditionError("nothing is written");
  }
  // Takes the snapshot over (its run_id, job and versions are filled in here) and returns; it is
  // written on a thread of the sink's. What cannot be written is the sink's to tell.
  virtual void Save(checkpoint::Snapshot snapshot) = 0;
  // A checkpoint that was wanted is not handed over: its files could not be written.
  virtual void Failed(const absl::Status& /*why*/) {}
  // Superseded: another process owns model_dir, and this one must write nothing there any more.
  virtual absl::Status CheckOwner() const { return absl::OkStatus(); }
  // Until all that was handed over is published or has failed: the status of the last save.
  virtual absl::Status Drain() = 0;
};

}  // namespace muster
