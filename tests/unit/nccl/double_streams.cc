// common/collective/nccl/cuda_streams.h without LibTorch, over the double.
#include "common/collective/nccl/cuda_streams.h"
#include "tests/unit/nccl/nccl_double.h"

namespace muster::collective {

cudaStream_t PoolStream(int device) {
  return static_cast<cudaStream_t>(nccl_double::NewStream(device));
}
cudaStream_t CurrentStream(int device) {
  return static_cast<cudaStream_t>(nccl_double::CurrentStreamOf(device));
}
DeviceScope::DeviceScope(int device) : before_(0) {
  cudaGetDevice(&before_);
  cudaSetDevice(device);
}
DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

}  // namespace muster::collective
