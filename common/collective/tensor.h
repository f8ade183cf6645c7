// Converts LibTorch tensors to buffers of collective operations. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/collective/communicator.h"

namespace muster::collective {

// Returns the memory of `tensor` as a buffer. The tensor must outlive the operation. A type that
// cannot be reduced (bool, int32, ...) becomes kByte, which can be broadcast and gathered. Returns
// an error for a non-contiguous or sparse tensor.
absl::StatusOr<Buffer> TensorBuffer(const at::Tensor& tensor);

}  // namespace muster::collective
