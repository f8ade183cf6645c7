// The input of a replica's training loop. A replica is one device's copy of the model, with its own
// thread. A generation is a period of training with fixed members. It ends when a member is lost or
// joins. Each LoopInput belongs to one generation.
//
// A LoopInput has the current batch of the training data. A program may make several steps over one
// batch. A LoopInput also reads the named datasets, which the program declares besides its splits.
// After each step, a LoopInput stores the positions in all datasets in the LoopState.
//
// All replicas of the generation make the same calls, each in its own thread, because the replicas
// communicate to load some batches (common/train/input/loop_data.h).
#pragma once

#include <memory>
#include <vector>

#include "common/train/input/loop_data.h"
#include "common/train/loop/loop_context.h"
#include "muster/data.h"

namespace muster {

// Handles a restart with shorter epochs. A state may have been saved in the middle of a long epoch,
// and the job's epochs may have become shorter before the restart. If the position in `state` is
// beyond the end of its epoch, moves the position to the start of the next epoch and returns true.
// The caller must then reset the sums over the epoch that was left.
bool LeaveShorterEpoch(const TrainData& data, LoopState* state);

class LoopInput {
 public:
  // Begins at the positions in the LoopState of `loop`. `loop` must outlive this object.
  explicit LoopInput(const LoopReplica& loop);

  // Loads the next batch of the training data. The program makes `steps` steps over the batch. If
  // no step over the current batch was made, keeps the current batch. If an earlier generation has
  // made some steps over the batch, ignores `steps`: the batch keeps its number of steps. Throws
  // StatusError, for example if this generation has made some steps over the current batch, but not
  // all.
  void Next(int64_t steps);
  // Sets `batch` to the next batch of a named dataset and returns true. After the last batch of a
  // pass, returns false once and leaves `batch` unchanged. Throws StatusError.
  bool NextOf(DatasetHandle dataset, data::Batch* batch);

  // Returns true if a batch is loaded and has steps left.
  bool has_batch() const { return use_ == Use::kLoaded || use_ == Use::kBegun; }
  // Returns how many steps over the current batch are left.
  int64_t steps_left() const { return has_batch() ? steps_ - steps_done_ : 0; }
  // Returns the batch that was loaded last. All its steps may be complete. REQUIRES: a batch was
  // loaded.
  const FedBatch& batch() const { return batch_; }
  // Returns the ProgramError for a step without a batch. REQUIRES: !has_batch().
  absl::Status NoBatchError() const;
  // Counts a completed step over the current batch, and updates the positions in the LoopState.
  // After the final step over a batch, the position in the training data moves to the next batch.
  // Does not communicate. REQUIRES: has_batch().
  void StepDone();

  // TakeLeftOut returns the damaged examples that were left out of the batches loaded since the
  // previous call of TakeLeftOut. TakeWaitSeconds returns the seconds that this replica waited for
  // the batches loaded since the previous call of TakeWaitSeconds.
  DamagedExamples::Report TakeLeftOut();
  double TakeWaitSeconds();

 private:
  // The state of batch_ in this generation.
  enum class Use {
    kNone,    // No batch was loaded.
    kLoaded,  // No step over batch_ was made.
    kBegun,   // Some steps over batch_ were made.
    kDone,    // All steps over batch_ were made.
  };
  void OpenFeeds();
  void Load();
  // Adds to left_out_ and wait_seconds_.
  void Account(const FedBatch& loaded);

  const LoopReplica& loop_;
  LoopState& state_;
  std::unique_ptr<Feed> feed_;
  std::vector<std::unique_ptr<NamedFeed>> named_feeds_;  // Indexed by DatasetHandle::index.
  Use use_ = Use::kNone;
  FedBatch batch_;
  // The number of steps to make over batch_, and how many of them are complete. Includes steps of
  // an earlier generation.
  int64_t steps_ = 0, steps_done_ = 0;
  DamagedExamples::Report left_out_;
  double wait_seconds_ = 0;
};

}  // namespace muster
