// Loss functions. Each returns one value per example, shape [batch], as Step::minimize expects. The
// value is the mean over all dimensions except the first. With LossShape::kPerElement, the result
// has one value per element (token, pixel, ...) and no mean. Use it for a minimize() with weights
// of that shape.
//
// Losses are computed in float32 or float64, even if autocast produced narrower outputs. For an
// empty batch, the result has shape [0]. Invalid shapes throw a c10::Error with one sentence.
// Arguments are never broadcast. Call these functions with the prefix muster::, because LibTorch
// has functions of the same names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace muster {

enum class LossShape {
  kPerExample,  // [batch]
  kPerElement,  // The shape of the targets. The loss of an element that cross_entropy ignores is 0.
};

struct CrossEntropyOptions {
  // The dimension of the classes in the logits. 1 is torch's order, [batch, classes] or [batch,
  // classes, tokens...]. -1 is the order [batch, tokens..., classes].
  int64_t class_dim = 1;
  // Elements with this label have loss 0 and do not count in the mean.
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // In [0, 1].
  LossShape shape = LossShape::kPerExample;
};
// The softmax cross entropy of logits. `labels` are integer class numbers, [batch] or [batch,
// tokens...], or floating-point probabilities of the logits' shape. ignore_index applies only to
// class numbers. The mean covers the elements of an example that are not ignored. If all elements
// are ignored, the mean is 0.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  // If false, outputs are probabilities, which are clamped to [1e-7, 1 - 1e-7].
  bool from_logits = true;
  double label_smoothing = 0;  // In [0, 1]. With smoothing s, a target t becomes t (1 - s) + s / 2.
  LossShape shape = LossShape::kPerExample;
};
// The sigmoid cross entropy. Targets are in [0, 1] and have the shape of the outputs.
at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& targets,
                                const BinaryCrossEntropyOptions& options = {});

// The following losses require outputs and targets of the same shape.
at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets,
                              LossShape shape = LossShape::kPerExample);
at::Tensor mean_absolute_error(const at::Tensor& outputs, const at::Tensor& targets,
                               LossShape shape = LossShape::kPerExample);
// Computes max(0, 1 - target * output), for targets -1 and 1. A target of 0 counts as -1.
at::Tensor hinge(const at::Tensor& outputs, const at::Tensor& targets,
                 LossShape shape = LossShape::kPerExample);
// Computes error^2 / 2 if |error| is below delta, otherwise delta * (|error| - delta / 2).
at::Tensor huber(const at::Tensor& outputs, const at::Tensor& targets, double delta = 1,
                 LossShape shape = LossShape::kPerExample);

}  // namespace muster
