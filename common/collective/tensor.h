// LibTorch tensors as buffers of a collective operation. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/collective/communicator.h"

namespace muster {

// The memory of `tensor`, which must outlive the operation. Types that cannot be reduced (bool,
// int32, ...) become bytes, which can be broadcast and gathered. A non-contiguous or sparse tensor
// is refused in one sentence.
absl::StatusOr<Buffer> TensorBuffer(const at::Tensor& tensor);

}  // namespace muster
