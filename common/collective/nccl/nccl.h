// Communicators between GPUs that use NCCL. This header does not need CUDA or NCCL. The
// implementation is in a shared library (the module lib/muster_nccl.so), which the first call
// loads. A process that only uses CPUs does not load the library.
//
// Differences from the CPU backends:
// - Buffers are in the memory of the communicator's device. An operation runs on the communicator's
//   own stream, after the work that is already queued on the calling thread's current CUDA stream.
// - Wait() blocks the calling thread until the device is done. Any stream may use the result
//   afterwards.
// - While the device works, the ranks compare the issued operations over a host communicator, which
//   is a communicator of a CPU backend.
// - The destructor of a communicator without an error blocks until the other ranks have received
//   this rank's data. It blocks for at most `timeout`, and for at most 5 s.
// - An aborted NCCL operation completes on its stream as if it had succeeded, but its Wait() fails.
//   Callers must therefore enqueue an update only after Wait() has returned OK. No kernel of this
//   communicator runs after Abort().
// - The maximum of NaN and a number may be the number.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/transport/counted_stream.h"

namespace muster::collective {

struct NcclOptions {
  std::vector<int> devices;  // The device of each replica of this process.
  Duration formation_timeout = std::chrono::seconds(60);
  Duration timeout = std::chrono::seconds(60);  // For each operation.
  // Counts the data of operations (TrafficOf in operation.h). May be null.
  std::shared_ptr<transport::Traffic> traffic;
};

// Returns the UUIDs of CUDA devices, such as "GPU-8932f937-...".
absl::StatusOr<std::vector<std::string>> CudaUuids(const std::vector<int>& devices);

// Returns one communicator for each replica of this process. The ranks are the replicas of all
// processes, in the same order as in MakeReplicaCommunicators. `group` is the result of FormGroup.
// First, `group` broadcasts NCCL's unique id. After that, `group` is the host communicator over
// which the ranks compare operations.
//
// Blocks until the communicators are formed and a first reduction has succeeded, for at most
// `formation_timeout`. Polls `aborted`, and returns Superseded once `aborted` returns true. Returns
// ConfigurationError if this build or this host lacks NCCL or one of the devices.
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

}  // namespace muster::collective
