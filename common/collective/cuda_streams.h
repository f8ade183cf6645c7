// All that the NCCL backend takes from LibTorch's CUDA side. Everything else it asks of CUDA and
// NCCL are their C functions, so that a test can put doubles in their place (tests/unit/nccl).
#pragma once

#include <cuda_runtime_api.h>

namespace muster::collective {

// A stream of LibTorch's pool, of high priority, of `device`.
cudaStream_t PoolStream(int device);
// The calling thread's current stream on `device`.
cudaStream_t CurrentStream(int device);

// The calling thread's current device, while this lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
};

}  // namespace muster::collective
