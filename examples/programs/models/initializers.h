// Initializers of Keras, for weights in LibTorch's layouts.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster::nn {

// Returns weights from the uniform distribution on [-a, a] with a = sqrt(6 / (fan_in + fan_out)),
// drawn from LibTorch's default generator. `shape` is [out, in, receptive field...].
at::Tensor GlorotUniform(at::IntArrayRef shape);

}  // namespace muster::nn
