// Loss functions. Each returns one value per example, shape [batch], as Step::minimize expects. The
// value is the mean over all dimensions except the first. With LossShape::kPerElement, there is no
// mean, and the result has one value per element (token, pixel, ...). Use kPerElement if you pass
// one weight per element to minimize().
//
// Arguments narrower than float32 (from autocast) are converted to float32. For an empty batch, the
// first dimension of the result is 0. Invalid shapes throw a c10::Error whose message is one
// sentence. Arguments are never broadcast. Call these functions with the prefix muster::, because
// LibTorch has functions of the same names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace muster {

enum class LossShape {
  kPerExample,  // [batch]
  // The shape of the targets. For cross_entropy: the logits' shape without the class dimension.
  kPerElement,
};

struct CrossEntropyOptions {
  // The dimension of the classes in the logits. 1 is for PyTorch's order: [batch, classes] or
  // [batch, classes, tokens...]. -1 is for the order [batch, tokens..., classes].
  int64_t class_dim = 1;
  // Elements with this label have loss 0 and do not count in the mean.
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // In [0, 1].
  LossShape shape = LossShape::kPerExample;
};
// Returns the softmax cross entropy of logits. `labels` are either integer class numbers, [batch]
// or [batch, tokens...], or floating-point probabilities of the logits' shape. ignore_index applies
// only to class numbers. The loss of an example is the mean over its elements whose label is not
// ignore_index. If there are no such elements, the loss is 0.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  // True: outputs are logits. False: outputs are probabilities, which are clamped to [1e-7, 1 -
  // 1e-7].
  bool from_logits = true;
  double label_smoothing = 0;  // In [0, 1]. With smoothing s, a target t becomes t (1 - s) + s / 2.
  LossShape shape = LossShape::kPerExample;
};
// Returns the sigmoid cross entropy. Targets are in [0, 1] and have the shape of the outputs.
at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& targets,
                                const BinaryCrossEntropyOptions& options = {});

// In all following losses, outputs and targets must have the same shape.
at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets,
                              LossShape shape = LossShape::kPerExample);
at::Tensor mean_absolute_error(const at::Tensor& outputs, const at::Tensor& targets,
                               LossShape shape = LossShape::kPerExample);
// Computes max(0, 1 - target * output), for targets -1 and 1. A target of 0 counts as -1.
at::Tensor hinge(const at::Tensor& outputs, const at::Tensor& targets,
                 LossShape shape = LossShape::kPerExample);
// With error = output - target, computes error^2 / 2 if |error| < delta, and otherwise delta *
// (|error| - delta / 2).
at::Tensor huber(const at::Tensor& outputs, const at::Tensor& targets, double delta = 1,
                 LossShape shape = LossShape::kPerExample);

}  // namespace muster
