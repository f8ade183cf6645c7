#include "initializers.h"

#include <ATen/ops/empty.h>

#include <cmath>

namespace muster::nn {

at::Tensor GlorotUniform(at::IntArrayRef shape) {
  TORCH_CHECK(shape.size() >= 2, "a kernel has at least two dimensions, not ", shape);
  int64_t receptive_field = 1;
  for (size_t d = 2; d < shape.size(); ++d) receptive_field *= shape[d];
  const double fans = static_cast<double>((shape[0] + shape[1]) * receptive_field);
  const double limit = std::sqrt(6 / fans);
  return at::empty(shape).uniform_(-limit, limit);
}

}  // namespace muster::nn
