// NCCL between GPUs. Declared without CUDA or NCCL: the code is a module of its own
// (lib/muster_nccl.so) that is loaded at the first call, so that processes on CPUs pay nothing.
//
// How it differs from the CPU backends:
// - Buffers are device memory of the communicator's device. An operation is enqueued behind the
//   calling thread's current CUDA stream, and runs on a stream of the communicator's own.
// - Wait() blocks the host until the device is done, so any stream may use the result then.
// - What the ranks issued is compared over the host group, while the device works.
// - The destructor of one that is well lets what is under way to other ranks arrive (some seconds
//   at the most).
// - An aborted NCCL operation completes on its stream as if it were done. Its Wait() never says
//   OK: enqueue an update only after Wait() has. After Abort() no kernel of this communicator runs
//   any more.
// - NaN in a maximum is not guaranteed to win.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"

namespace muster {

struct NcclOptions {
  std::vector<int> devices;  // of this process, one for each local replica
  Duration formation_timeout = std::chrono::seconds(60);
  Duration timeout = std::chrono::seconds(60);  // of an operation
};

// The UUIDs of CUDA devices, "GPU-8932f937-...".
absl::StatusOr<std::vector<std::string>> CudaUuids(const std::vector<int>& devices);

// Communicators for the local replicas, replica-ranked over the whole group, as
// MakeReplicaCommunicators makes them for CPUs. `group` (made by FormGroup) carries NCCL's unique
// id and later the comparisons. A first reduction is part of the formation, which has
// `formation_timeout` for all; `aborted` is polled, and true ends it with Superseded.
// ConfigurationError when this build or this host has no NCCL or no such device.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    const NcclOptions& options, const std::function<bool()>& aborted);

// What the module exports, as `MusterMakeNcclCommunicators` and `MusterCudaUuids`. Internal.
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
