// A tensor as a file of numpy's.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "muster/status.h"

namespace muster {

// Of a tensor on the CPU, row-major; bfloat16, which numpy has not, as float32. Appears by one
// rename. Errors say what could not be written.
absl::Status WriteNpy(const std::string& path, const at::Tensor& tensor);

}  // namespace muster
