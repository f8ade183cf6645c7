// Buffers of mode BufferMode::kPerReplica, such as image pools and queues. A replica is one
// device's copy of the model, with its own thread. Each replica has its own values of these
// buffers, which are never averaged. A checkpoint has the values of all replicas, stacked in one
// tensor "<model>.<buffer>" of shape [replicas, shape...].
//
// A generation is a period of training with fixed members. It ends when a member is lost or joins.
// A replica keeps its buffers as long as its process lives, even if its index changes with a
// generation. A replica of a new process receives values from the chief's process. If the chief's
// process has the buffers of n saved replicas, replica r receives the buffers of saved replica (r
// modulo n). If the chief's process has only loaded initial weights, the replica receives the
// values that these weights set. A buffer that receives no value keeps its value from build().
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/tensor.h"
#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"

namespace muster {

// Pairs of a buffer's name and its stacked values on the CPU.
using StackedBuffers = std::vector<std::pair<std::string, at::Tensor>>;

// Gathers the buffers of all replicas on replica 0. Called by all replicas of a generation. Sends
// replica 0's value of `*wanted` to all replicas, and gathers nothing if this value is false.
// Returns the buffers on replica 0, and an empty list on all other replicas. If the program has no
// such buffers, does not communicate and returns an empty list. Returns a ProgramError if the
// number of elements of a buffer differs between replicas.
absl::StatusOr<StackedBuffers> GatherReplicaBuffers(const Replica& replica,
                                                    collective::Communicator* communicator,
                                                    bool* wanted);

// Sends the buffers in replica 0's `kept` to all replicas for which `has_own` is false. `kept` may
// lack some buffers. Called by all replicas at the start of a generation.
absl::Status DistributeReplicaBuffers(const Replica& replica,
                                      collective::Communicator* communicator,
                                      const StackedBuffers& kept, bool has_own);

}  // namespace muster
