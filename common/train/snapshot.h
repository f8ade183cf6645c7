// Between a replica and a checkpoint: its tensors by name, copied in one go at a step boundary, and
// put back.
//
//   model      "<model>.<parameter or buffer>"; a program's only model goes without the prefix, so
//              that the file is that module's state_dict
//   optimizer  "<optimizer>.<model>.<parameter>.<slot>", likewise
//
// and embedding tables behind them (embedding_state.h). Buffers that each replica has of its own
// are in `model` as replica 0 has them, and of all replicas in replica_buffers (replica_buffers.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/train/loop_state.h"
#include "common/train/replica.h"
#include "common/train/replica_buffers.h"

namespace muster {

// Takes snapshots. Their memory comes back here when the last one that refers to it is gone, and
// serves the next: touching new pages costs more than the copy. Any thread, one at a time;
// snapshots may outlive it.
class SnapshotTaker {
 public:
  SnapshotTaker();
  // Row-major copies, whatever the tensors' layout; of a CUDA replica in pinned memory. All of
  // `state` but run_id, job and versions is filled in. An error says that there is no memory, or
  // names a tensor of a type that checkpoints cannot hold. Slots that are elsewhere are left out.
  // `own`: of all replicas.
  absl::StatusOr<checkpoint::Snapshot> Take(const Replica& replica, const LoopState& state,
                                            const StackedBuffers& own = {});
  // The same without a copy of anything, and without slots: of a CPU replica of a parameter-server
  // job, which stays as it is until that was written.
  static absl::StatusOr<checkpoint::Snapshot> View(const Replica& replica, const LoopState& state);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

// Its memory as a tensor, which does not own it.
at::Tensor ViewOf(const checkpoint::Tensor& tensor);

// All slots, by the names of a checkpoint: by optimizer, parameter, slot.
std::vector<checkpoint::TensorInfo> SlotInfos(const Replica& replica);

// The parameters by the names of a checkpoint.
std::vector<std::pair<std::string, at::Tensor>> NamedParameters(const Replica& replica);

// ProgramError naming the first tensor whose type checkpoints cannot hold.
absl::Status CheckSavable(const Replica& replica);

// Puts the tensors back: all of the replica's must be there, of the same shape and type, and no
// others. Otherwise a ConfigurationError names the first that is missing or different, and nothing
// has changed. What was frozen and unfrozen when it was saved is so again: slots of parameters that
// build() freezes come with the checkpoint. RestoreModels leaves the optimizers alone.
absl::Status RestoreModels(const checkpoint::Snapshot& snapshot, Replica* replica);
absl::Status RestoreReplica(const checkpoint::Snapshot& snapshot, const Job& job, Replica* replica,
                            LoopState* state);

// The snapshot's buffers of each replica's own, checked against the program's.
absl::StatusOr<StackedBuffers> RestoreStacked(const checkpoint::Snapshot& snapshot,
                                              const Replica& replica);

}  // namespace muster
