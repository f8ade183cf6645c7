// Keras' initializers for weights in LibTorch's layouts.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster::nn {

// Returns weights from a uniform distribution in +-sqrt(6 / (fan_in + fan_out)), from LibTorch's
// default generator. `shape` is [out, in, receptive field...].
at::Tensor GlorotUniform(at::IntArrayRef shape);

}  // namespace muster::nn
