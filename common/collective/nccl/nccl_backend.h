// Makes the NCCL communicator from an initialized ncclComm_t. This header also has functions for
// nccl_formation.cc, which initializes the ncclComm_t. Internal to the NCCL module.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string_view>

#include "common/collective/communicator.h"
#include "common/transport/counted_stream.h"

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

struct NcclRecords {
  std::shared_ptr<FlightRecorder> recorder;     // May be null.
  std::shared_ptr<transport::Traffic> traffic;  // May be null.
};

// Takes ownership of `device.comm`. `shadow` is a CPU communicator of the same ranks. The ranks use
// `shadow` to compare their operations.
std::unique_ptr<Communicator> MakeNcclCommunicator(std::unique_ptr<Communicator> shadow,
                                                   const NcclDevice& device, Duration timeout,
                                                   const NcclRecords& records);

// Return the status for an error of CUDA or NCCL. common/base/faults/process_fault.h classifies the
// errors. NcclError appends the text of NCCL's last error. `comm` may be null.
absl::Status CudaError(std::string_view what, cudaError_t error);
absl::Status NcclError(std::string_view what, ncclResult_t result, ncclComm_t comm);

// Sleeps between two polls of a state that another thread or the device changes. `since` is the
// time of the first poll.
void Pause(MonotonicTime since);

}  // namespace muster::collective
