// The input of a replica's loop in one generation: the batch over which the replica makes steps,
// and the positions in the training data and in the program's named datasets. Used by the replica's
// thread. All replicas of the generation make the same calls, because a feed may communicate
// (loop_data.h).
#pragma once

#include <memory>
#include <vector>

#include "common/train/loop/loop_context.h"
#include "common/train/loop_data.h"
#include "muster/data.h"

namespace muster {

// Moves the position to the next epoch if it is beyond the end of its epoch, because the job's
// epochs have become shorter since the state was saved. Returns true if it moves the position. The
// sums over the former epoch are then invalid.
bool LeaveShorterEpoch(const TrainData& data, LoopState* state);

class LoopInput {
 public:
  // Begins at the positions in the LoopState, and writes each new position to it. `loop` must
  // outlive this object.
  explicit LoopInput(const LoopReplica& loop);

  // Makes a batch of the training data current, over which the program wants to make `steps` steps.
  // Loads the next batch, unless the current batch is loaded and has no step in this generation. If
  // an earlier generation has made steps over the batch, its number of steps stays. Throws
  // StatusError: a ProgramError if steps over the current batch are left.
  void Next(int64_t steps);
  // Sets `batch` to the next batch of a named dataset. Returns false, and leaves `batch` unchanged,
  // once at the end of each pass. Throws StatusError.
  bool NextOf(DatasetHandle dataset, data::Batch* batch);

  // Returns true if the current batch has steps left.
  bool has_batch() const { return use_ == Use::kLoaded || use_ == Use::kBegun; }
  int64_t steps_left() const { return has_batch() ? steps_ - steps_done_ : 0; }
  // Returns the current batch, or the last one if its steps are complete.
  const FedBatch& batch() const { return batch_; }
  // Returns the ProgramError for a step without a batch. REQUIRES: !has_batch().
  absl::Status NoBatchError() const;
  // Counts a step over the current batch, and moves the positions in the LoopState past it.
  // Communicates with no other replica. REQUIRES: has_batch().
  void StepDone();

  // These return what batches have added since the last call: the damaged examples that they left
  // out, and the time in seconds that this replica waited for them.
  DamagedExamples::Report TakeLeftOut();
  double TakeWaitSeconds();

 private:
  // The use of batch_ in this generation.
  enum class Use {
    kNone,    // No batch was loaded.
    kLoaded,  // No step was made over it.
    kBegun,   // Some of its steps were made.
    kDone,    // All of its steps were made.
  };
  void OpenFeeds();
  void Load();
  void Account(const FedBatch& loaded);

  const LoopReplica& loop_;
  LoopState& state_;
  std::unique_ptr<Feed> feed_;
  std::vector<std::unique_ptr<NamedFeed>> named_feeds_;  // Indexed by handle.
  Use use_ = Use::kNone;
  FedBatch batch_;
  // The number of steps to make over batch_, and the number already made, also by an earlier
  // generation.
  int64_t steps_ = 0, steps_done_ = 0;
  DamagedExamples::Report left_out_;
  double wait_seconds_ = 0;
};

}  // namespace muster
