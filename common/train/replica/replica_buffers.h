// Buffers of mode BufferMode::kPerReplica, such as image pools and queues, which each replica has
// for itself. They are never averaged, and are not part of the state that a new member receives. A
// checkpoint has the buffers of all replicas, stacked: "<model>.<buffer>", [replicas, shape...].
//
// A replica keeps its buffers while its process lives, even if its index changes with a generation.
// A replica of a new process receives its buffers from the chief's process, which has the buffers
// of n saved replicas. Replica r receives those of saved replica r modulo n. If the chief's process
// has only loaded initial weights, replicas receive the values that these weights set. All other
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

// Stacked buffers on the CPU, with their names.
using StackedBuffers = std::vector<std::pair<std::string, at::Tensor>>;

// Gathers the buffers of all replicas on replica 0. Returns an empty result on the other replicas.
// Called by all replicas of a generation. Replica 0's value of `wanted` is sent to the others, and
// nothing is gathered if it is false. Returns a ProgramError for a buffer whose number of elements
// differs between replicas.
absl::StatusOr<StackedBuffers> GatherReplicaBuffers(const Replica& replica,
                                                    collective::Communicator* communicator,
                                                    bool* wanted);

// Sends the buffers that replica 0 has in `kept` to the replicas with `has_own` false. `kept` may
// have only some of the buffers. Called by all replicas at the start of a generation.
absl::Status DistributeReplicaBuffers(const Replica& replica,
                                      collective::Communicator* communicator,
                                      const StackedBuffers& kept, bool has_own);

}  // namespace muster
