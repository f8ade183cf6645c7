// Writes a tensor as a numpy file.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "muster/status.h"

namespace muster {

// REQUIRES: the tensor is on the CPU. Writes it row-major. numpy has no bfloat16, so it is written
// as float32. The file appears by one rename. Errors say what could not be written.
absl::Status WriteNpy(const std::string& path, const at::Tensor& tensor);

}  // namespace muster
