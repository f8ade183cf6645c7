// NCCL between GPUs. This header needs neither CUDA nor NCCL. The code is a separate module
// (lib/muster_nccl.so), which is loaded at the first call. CPU-only processes therefore do not load
// it.
//
// Differences from the CPU backends:
// - Buffers are device memory of the communicator's device. An operation is enqueued after the work
//   of the calling thread's current CUDA stream. It runs on the communicator's own stream.
// - Wait() blocks the host until the device is done. Any stream may use the result afterwards.
// - While the device works, the ranks compare over the host group which operations they issued.
// - The destructor of a healthy communicator blocks until its outgoing data has arrived at the
// other
//   ranks, or until min(timeout, 5 s) has passed.
// - An aborted NCCL operation completes on its stream as if it had succeeded, but its Wait() never
//   returns OK. Enqueue an update only after Wait() has returned OK. No kernel of this communicator
//   runs after Abort().
// - A maximum over values that include NaN is not guaranteed to be NaN.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"

namespace muster {

struct NcclOptions {
  std::vector<int> devices;  // One for each local replica of this process.
  Duration formation_timeout = std::chrono::seconds(60);
  Duration timeout = std::chrono::seconds(60);  // For each operation.
};

// Returns the UUIDs of CUDA devices, such as "GPU-8932f937-...".
absl::StatusOr<std::vector<std::string>> CudaUuids(const std::vector<int>& devices);

// Returns one communicator for each local replica. The ranks count the replicas of all processes,
// as in MakeReplicaCommunicators for CPUs. `group` (made by FormGroup) carries NCCL's unique id
// during the formation. Later the ranks use it to compare which operations they issued. The
// formation includes a first reduction; `formation_timeout` limits both. The formation polls
// `aborted`, and returns Superseded once it is true. Returns ConfigurationError if this build or
// this host lacks NCCL or one of the devices.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    const NcclOptions& options, const std::function<bool()>& aborted);

// The types of the functions that the module exports as `MusterMakeNcclCommunicators` and
// `MusterCudaUuids`. Internal.
struct NcclRequest {
  std::unique_ptr<Communicator> group;
  const std::vector<int>& replicas_per_rank;
  const NcclOptions& options;
  const std::function<bool()>& aborted;
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> result;
};
using NcclFactory = void (*)(NcclRequest* request);
struct CudaUuidsRequest {
  const std::vector<int>& devices;
  absl::StatusOr<std::vector<std::string>> result;
};
using CudaUuidsReader = void (*)(CudaUuidsRequest* request);

}  // namespace muster
