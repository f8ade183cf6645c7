// Writes a tensor as a file in numpy's .npy format.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "muster/status.h"

namespace muster {

// Writes the tensor in row-major order. Converts bfloat16 to float32, because numpy has no
// bfloat16. The file appears at `path` when it is complete. On failure, returns an error that names
// the file. REQUIRES: the tensor is on the CPU.
absl::Status WriteNpy(const std::string& path, const at::Tensor& tensor);

}  // namespace muster
