// NCCL between GPUs. This header needs neither CUDA nor NCCL. The code is a separate module
// (lib/muster_nccl.so), which is loaded at the first call. CPU-only processes therefore do not load
// it.
//
// Differences from the CPU backends:
// - Buffers are device memory of the communicator's device. An operation is enqueued after the work
//   of the calling thread's current CUDA stream. It runs on the communicator's own stream.
// - Wait() blocks the host until the device is done. Any stream may use the result afterwards.
// - The ranks compare what they issued over the host group, while the device works.
// - The destructor of a healthy communicator waits for its outgoing data to arrive at other ranks.
//   It waits for some seconds at most.
// - An aborted NCCL operation completes on its stream as if it had succeeded, but its Wait() never
//   returns OK. Enqueue an update only after Wait() has returned OK. After Abort() no kernel of
//   this communicator runs any more.
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

// Returns one communicator for each local replica. Replicas are ranked over the whole group, as by
// MakeReplicaCommunicators for CPUs. `group` (made by FormGroup) carries NCCL's unique id, and
// later the comparisons of what the ranks issued. The formation includes a first reduction, and
// `formation_timeout` limits all of it. `aborted` is polled, and true ends the formation with
// Superseded. Returns ConfigurationError when this build or this host lacks NCCL or one of the
// devices.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    const NcclOptions& options, const std::function<bool()>& aborted);

// The functions that the module exports, as `MusterMakeNcclCommunicators` and `MusterCudaUuids`.
// Internal.
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
