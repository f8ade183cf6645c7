// Copies a replica's tensors to a snapshot between two steps, and restores them. A snapshot has
// these tensors:
//
//   model      "<model>.<parameter or buffer>"; a program's only model has no prefix, so that the
//              file is that module's state_dict
//   optimizer  "<optimizer>.<model>.<parameter>.<slot>", with the same rule for the model's prefix
//
// The tensors of embedding tables follow (embedding_state.h). `model` has the kPerReplica buffers
// of replica 0, and `replica_buffers` those of all replicas (replica_buffers.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/train/loop_state.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"

namespace muster {

// Takes snapshots, and reuses their memory, because touching new pages costs more than the copy.
// The memory of a snapshot is free for reuse when the last reference to it is gone. Snapshots may
// outlive this object. Calls may come from different threads, one at a time.
class SnapshotTaker {
 public:
  SnapshotTaker();
  // Returns a snapshot with row-major copies of all tensors. Copies of a CUDA replica are in pinned
  // memory. Slots on parameter servers are left out. Sets all of Snapshot::state except run_id, job
  // and versions. `own` has the kPerReplica buffers of all replicas. Returns ResourceExhausted
  // without enough memory, or a ProgramError that names a tensor whose type checkpoints do not
  // support.
  absl::StatusOr<checkpoint::Snapshot> Take(const Replica& replica, const LoopState& state,
                                            const StackedBuffers& own = {});
  // Returns a snapshot without slots that refers to the replica's memory. The replica must not
  // change until the snapshot is written. Used for a CPU replica of a parameter-server job.
  static absl::StatusOr<checkpoint::Snapshot> View(const Replica& replica, const LoopState& state);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

// Returns a tensor that refers to the memory of `tensor`, which must outlive it.
at::Tensor ViewOf(const checkpoint::Tensor& tensor);

// Returns all slots with their names in checkpoints, sorted by optimizer, parameter and slot.
std::vector<checkpoint::TensorInfo> SlotInfos(const Replica& replica);

// Returns the parameters with their names in checkpoints.
std::vector<std::pair<std::string, at::Tensor>> NamedParameters(const Replica& replica);

// Returns a ProgramError that names the first tensor whose type checkpoints do not support.
absl::Status CheckSavable(const Replica& replica);

// RestoreModels restores the models only. RestoreReplica restores the whole state, including which
// parameters are frozen. The snapshot must have exactly the replica's tensors, with the same shapes
// and types. It may lack the slots of frozen parameters. Otherwise both return a ConfigurationError
// that names the first missing or different tensor, and the replica is unchanged.
absl::Status RestoreModels(const checkpoint::Snapshot& snapshot, Replica* replica);
absl::Status RestoreReplica(const checkpoint::Snapshot& snapshot, const Job& job, Replica* replica,
                            LoopState* state);

// Returns the snapshot's kPerReplica buffers. Returns a ConfigurationError if they do not fit the
// program.
absl::StatusOr<StackedBuffers> RestoreStacked(const checkpoint::Snapshot& snapshot,
                                              const Replica& replica);

}  // namespace muster
