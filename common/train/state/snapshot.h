// Copies a replica's tensors into a snapshot by name, in one go at a step boundary, and restores
// them.
//
//   model      "<model>.<parameter or buffer>"; a program's only model has no prefix, so that the
//              file is that module's state_dict
//   optimizer  "<optimizer>.<model>.<parameter>.<slot>", with the same rule for the model's prefix
//
// The tensors of embedding tables follow (embedding_state.h). For kPerReplica buffers, `model` has
// those of replica 0, and replica_buffers has those of all replicas (replica_buffers.h).
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

// Takes snapshots. Their memory returns to this object when the last reference to a snapshot is
// gone, and is used for the next one: touching new pages costs more than the copy. Thread-safe, one
// call at a time. Snapshots may outlive this object.
class SnapshotTaker {
 public:
  SnapshotTaker();
  // Returns row-major copies, whatever the tensors' layout. Copies of a CUDA replica are in pinned
  // memory. Fills in all of `state` except run_id, job and versions. The error reports a lack of
  // memory, or names a tensor whose type checkpoints do not support. Leaves out slots that are not
  // in this process. `own`: the buffers of all replicas.
  absl::StatusOr<checkpoint::Snapshot> Take(const Replica& replica, const LoopState& state,
                                            const StackedBuffers& own = {});
  // Returns a snapshot that refers to the replica's memory, without slots. Used for a CPU replica
  // of a parameter-server job. The replica must not change until the snapshot is written.
  static absl::StatusOr<checkpoint::Snapshot> View(const Replica& replica, const LoopState& state);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

// Returns a tensor that refers to the memory of `tensor` and does not own it.
at::Tensor ViewOf(const checkpoint::Tensor& tensor);

// Returns all slots under their checkpoint names: by optimizer, parameter, slot.
std::vector<checkpoint::TensorInfo> SlotInfos(const Replica& replica);

// Returns the parameters under their checkpoint names.
std::vector<std::pair<std::string, at::Tensor>> NamedParameters(const Replica& replica);

// Returns a ProgramError that names the first tensor whose type checkpoints do not support.
absl::Status CheckSavable(const Replica& replica);

// Restore the tensors. The snapshot must have exactly the replica's tensors, with the same shapes
// and types. Otherwise the ConfigurationError names the first missing or different one, and nothing
// has changed. Also restores which parameters are frozen: the checkpoint has the slots of
// parameters that build() freezes. RestoreModels does not touch the optimizers.
absl::Status RestoreModels(const checkpoint::Snapshot& snapshot, Replica* replica);
absl::Status RestoreReplica(const checkpoint::Snapshot& snapshot, const Job& job, Replica* replica,
                            LoopState* state);

// Returns the snapshot's kPerReplica buffers, checked against the program's.
absl::StatusOr<StackedBuffers> RestoreStacked(const checkpoint::Snapshot& snapshot,
                                              const Replica& replica);

}  // namespace muster
