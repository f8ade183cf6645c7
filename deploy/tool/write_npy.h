// Writes a tensor as a numpy file.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "muster/status.h"

namespace muster {

// Writes the tensor in row-major order. Writes bfloat16 as float32, because numpy has no bfloat16.
// Renames the complete file into place. Returns an error that names the file. REQUIRES: the tensor
// is on the CPU.
absl::Status WriteNpy(const std::string& path, const at::Tensor& tensor);

}  // namespace muster
