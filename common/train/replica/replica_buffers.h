// Buffers of mode BufferMode::kPerReplica, such as image pools and queues. They are never averaged,
// and are not part of the state that a new member receives. A checkpoint holds those of all
// replicas, stacked: "<model>.<buffer>", [replicas, shape...].
//
// A replica keeps its buffers while its process lives, even if its index changes with a generation.
// A replica of a new process receives the buffers that the chief's process holds for it. After a
// restore, replica r receives the buffers of saved replica r modulo the number of saved replicas.
// Without a checkpoint, it receives the buffers that initial weights were loaded into. All other
// buffers keep their values from build().
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/tensor.h"
#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"

namespace muster {

// Stacked buffers with their names, on the CPU.
using StackedBuffers = std::vector<std::pair<std::string, at::Tensor>>;

// Gathers the buffers of all replicas on replica 0; the others get nothing. Called by all replicas
// of a generation. Replica 0 sets `wanted`; if it is false, nothing is gathered. A ProgramError
// names a buffer that has different shapes on two replicas.
absl::StatusOr<StackedBuffers> GatherReplicaBuffers(const Replica& replica,
                                                    Communicator* communicator, bool* wanted);

// Called by all replicas at the start of a generation. Replicas with `has_own` false receive the
// buffers that replica 0 has in `kept`. `kept` may have only some of the buffers.
absl::Status DistributeReplicaBuffers(const Replica& replica, Communicator* communicator,
                                      const StackedBuffers& kept, bool has_own);

}  // namespace muster
