// The CUDA functions of LibTorch that the NCCL backend uses. For everything else, the backend calls
// the C functions of CUDA and NCCL. Tests replace all of these functions with fakes
// (tests/unit/nccl).
#pragma once

#include <cuda_runtime_api.h>

namespace muster::collective {

// Returns a high-priority stream of `device` from LibTorch's pool.
cudaStream_t PoolStream(int device);
cudaStream_t CurrentStream(int device);

// While this object exists, `device` is the current CUDA device of the thread that created it.
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
