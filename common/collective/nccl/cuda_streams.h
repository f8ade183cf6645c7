// The LibTorch CUDA functions that the NCCL backend uses. It calls CUDA and NCCL otherwise only
// through their C functions, so that a test can replace them with doubles (tests/unit/nccl).
#pragma once

#include <cuda_runtime_api.h>

namespace muster::collective {

// Returns a high-priority stream of `device` from LibTorch's pool.
cudaStream_t PoolStream(int device);
cudaStream_t CurrentStream(int device);

// Makes `device` the calling thread's current CUDA device during its lifetime.
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
