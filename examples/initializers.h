// Keras's initializers, for weights in LibTorch's layouts.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster::nn {

// Uniform in +-sqrt(6 / (fan_in + fan_out)), from the default generator; a kernel is
// [out, in, receptive field...].
at::Tensor GlorotUniform(at::IntArrayRef shape);

}  // namespace muster::nn
