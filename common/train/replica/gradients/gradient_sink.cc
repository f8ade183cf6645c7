#include "common/train/replica/gradients/gradient_sink.h"

#include <ATen/TensorOperators.h>

#include <utility>

namespace muster {

at::Tensor TakeGradient(const at::Tensor& parameter) {
  at::Tensor gradient = std::exchange(parameter.mutable_grad(), at::Tensor());
  return gradient.defined() && gradient.is_sparse() ? gradient.to_dense() : gradient;
}

void AddGradient(const at::Tensor& gradient, bool again, at::Tensor* sum) {
  if (!sum->defined()) {
    *sum = gradient.detach();
  } else if (again) {
    *sum = *sum + gradient;  // The backward pass may still use the memory of the first gradient.
  } else {
    sum->add_(gradient);
  }
}

void OwnMemory(at::Tensor* gradient) {
  if (gradient->has_storage() && gradient->storage().use_count() > 1) *gradient = gradient->clone();
}

}  // namespace muster
