// Buffers that each replica has of its own (BufferMode::kPerReplica): image pools, queues. They are
// never averaged and not part of the state that a new member is given; a checkpoint holds those of
// all replicas, stacked: "<model>.<buffer>", [replicas, shape...].
//
// A replica keeps its own as long as its process lives, whatever its number in a new generation.
// One that has none (its process is new) takes what the chief's process holds for it: that of the
// newest checkpoint, of replica r modulo the saved ones; without a checkpoint what a file of
// weights filled, and of the others what build() made.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/tensor.h"
#include "common/collective/communicator.h"
#include "common/train/replica.h"

namespace muster {

// By name, stacked, on the CPU.
using StackedBuffers = std::vector<std::pair<std::string, at::Tensor>>;

// Of all replicas, by all replicas of a generation; replica 0 gets them, the others nothing.
// `wanted` is replica 0's to say: where it does not want them nothing is gathered. A ProgramError
// names a buffer whose shape differs between replicas.
absl::StatusOr<StackedBuffers> GatherReplicaBuffers(const Replica& replica,
                                                    Communicator* communicator, bool* wanted);

// At the beginning of a generation, by all its replicas: those that have none of their own
// (`has_own` is false) take what replica 0 has `kept`, which may be some buffers' only.
absl::Status DistributeReplicaBuffers(const Replica& replica, Communicator* communicator,
                                      const StackedBuffers& kept, bool has_own);

}  // namespace muster
