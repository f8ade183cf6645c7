#include "common/collective/nccl/cuda_streams.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace muster::collective {

cudaStream_t PoolStream(int device) {
  return c10::cuda::getStreamFromPool(/*isHighPriority=*/true,
                                      static_cast<c10::DeviceIndex>(device))
      .stream();
}

cudaStream_t CurrentStream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

DeviceScope::DeviceScope(int device)
    : before_(c10::cuda::ExchangeDevice(static_cast<c10::DeviceIndex>(device))) {}
DeviceScope::~DeviceScope() {
  // Must not throw, although the device may be lost by now.
  c10::cuda::MaybeExchangeDevice(static_cast<c10::DeviceIndex>(before_));
}

}  // namespace muster::collective
