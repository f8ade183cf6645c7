// Copies a replica's tensors to a snapshot, and restores them. A replica is one device's copy of
// the model, with its own thread. A snapshot (checkpoint::Snapshot) is the content of a checkpoint.
// Slots are the state that an optimizer has for each parameter. A snapshot has these tensors:
//
//   model      "<model>.<parameter or buffer>"
//   optimizer  "<optimizer>.<model>.<parameter>.<slot>"
//
// If a program has only one model, these names have no part "<model>.". The tensors `model` are
// then the state_dict of that module.
//
// The tensors of embedding tables follow (embedding_state.h). Each replica has its own values of
// buffers of mode kPerReplica (replica_buffers.h). `model` has the values of replica 0, and
// Snapshot::replica_buffers has the values of all replicas.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/loop_state.h"

namespace muster {

// Takes snapshots. Reuses the memory of earlier snapshots, because touching new pages takes longer
// than the copy. The memory of a snapshot is reused when the last reference to the snapshot is
// gone. Snapshots may outlive this object. Different threads may use a SnapshotTaker, one at a
// time.
class SnapshotTaker {
 public:
  SnapshotTaker();
  // Returns a snapshot with row-major copies of all tensors. The copies of a CUDA replica are in
  // pinned memory. Slots on parameter servers are not included. Sets all fields of Snapshot::state
  // except run_id, job and versions. `own` has the kPerReplica buffers of all replicas. Returns
  // ResourceExhausted if there is not enough memory. Returns a ProgramError that names a tensor
  // whose type checkpoints do not support. Called between two steps.
  absl::StatusOr<checkpoint::Snapshot> Take(const Replica& replica,
                                            const checkpoint::TrainingState& state,
                                            const StackedBuffers& own = {});
  // Returns a snapshot that refers to the replica's own memory and has no slots. The replica must
  // not change before the snapshot is written. Used for a CPU replica of a parameter-server job.
  static absl::StatusOr<checkpoint::Snapshot> View(const Replica& replica,
                                                   const checkpoint::TrainingState& state);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

// Returns a tensor that refers to the memory of `tensor`. `tensor` must outlive the result.
at::Tensor ViewOf(const checkpoint::Tensor& tensor);

// Returns all slots, with their names in checkpoints. They are sorted by optimizer, parameter and
// slot.
std::vector<checkpoint::TensorInfo> SlotInfos(const Replica& replica);

// Returns pairs of a parameter's name in checkpoints and the parameter.
std::vector<std::pair<std::string, at::Tensor>> NamedParameters(const Replica& replica);

// Returns a ProgramError that names the first tensor whose type checkpoints do not support.
absl::Status CheckSavable(const Replica& replica);

// RestoreModels restores only the models. RestoreReplica restores the whole state, including which
// parameters are frozen. The snapshot must have exactly the replica's tensors, with the same shapes
// and types. As an exception, the snapshot may lack the slots of frozen parameters. If the snapshot
// does not fit, both return a ConfigurationError that names the first missing or different tensor,
// and the replica is unchanged.
absl::Status RestoreModels(const checkpoint::Snapshot& snapshot, Replica* replica);
absl::Status RestoreReplica(const checkpoint::Snapshot& snapshot, const Job& job, Replica* replica,
                            LoopState* state);

// Returns the snapshot's kPerReplica buffers of all replicas. Returns a ConfigurationError if they
// do not fit the program.
absl::StatusOr<StackedBuffers> RestoreStacked(const checkpoint::Snapshot& snapshot,
                                              const Replica& replica);

}  // namespace muster
