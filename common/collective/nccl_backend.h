// Inside the NCCL module: a communicator over an ncclComm_t that stands, and what its formation
// (nccl_formation.cc) shares with it.
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

// One local replica's.
struct NcclDevice {
  int device = 0;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
};

// `shadow`: the same ranks on the host. Owns `device.comm`.
std::unique_ptr<Communicator> MakeNcclCommunicator(std::unique_ptr<Communicator> shadow,
                                                   const NcclDevice& device, Duration timeout,
                                                   std::shared_ptr<FlightRecorder> recorder);

// Sorted by common/base/process_fault.h. NCCL's own last words are appended; `comm` may be null.
absl::Status CudaError(std::string_view what, cudaError_t error);
absl::Status NcclError(std::string_view what, ncclResult_t result, ncclComm_t comm);

// Between two looks at something that another thread or device changes.
void Pause(MonotonicTime since);

}  // namespace muster::collective
