// Parameters of unusual shapes and layouts, and gradients for them, for the tests of optimizers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>

#include <vector>

namespace muster {

// Returns a scalar, tensors of odd sizes, one without elements, and one in channels_last.
inline std::vector<at::Tensor> OddParameters(at::ScalarType dtype) {
  std::vector<at::Tensor> parameters;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {1}, {7}, {3, 37}, {0}, {5, 3, 3, 3}}) {
    at::Tensor parameter = at::randn(shape, at::TensorOptions().dtype(dtype));
    if (shape.size() == 4) parameter = parameter.contiguous(at::MemoryFormat::ChannelsLast);
    parameters.push_back(parameter);
  }
  return parameters;
}

// Returns random gradients with the parameters' strides.
inline std::vector<at::Tensor> GradientsLike(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(at::randn_like(parameter));
  return gradients;
}

}  // namespace muster
