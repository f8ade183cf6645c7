// LibTorch tensors as buffers of a collective operation. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/collective/communicator.h"

namespace muster {

// Returns the memory of `tensor`, which must outlive the operation. Types that cannot be reduced
// (bool, int32, ...) become bytes, which can be broadcast and gathered. Returns an error for a
// non-contiguous or sparse tensor.
absl::StatusOr<Buffer> TensorBuffer(const at::Tensor& tensor);

}  // namespace muster
