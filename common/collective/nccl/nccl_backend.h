// Internal to the NCCL module: a communicator over a ready ncclComm_t, and the helpers that its
// formation (nccl_formation.cc) shares with it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string_view>

#include "common/collective/communicator.h"

namespace muster {
class FlightRecorder;
}

namespace muster::collective {

// The device, stream and NCCL communicator of one local replica.
struct NcclDevice {
  int device = 0;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
};

// `shadow` connects the same ranks on the host. Takes ownership of `device.comm`.
std::unique_ptr<Communicator> MakeNcclCommunicator(std::unique_ptr<Communicator> shadow,
                                                   const NcclDevice& device, Duration timeout,
                                                   std::shared_ptr<FlightRecorder> recorder);

// Classifies the error with common/base/faults/process_fault.h. NcclError appends NCCL's last error
// text. `comm` may be null.
absl::Status CudaError(std::string_view what, cudaError_t error);
absl::Status NcclError(std::string_view what, ncclResult_t result, ncclComm_t comm);

// Sleeps between two polls of something that another thread or the device changes. `since` is when
// the polling began.
void Pause(MonotonicTime since);

}  // namespace muster::collective
