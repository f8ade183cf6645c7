// Losses by their usual names. Each returns one value per example, shape [batch]: the mean over all
// dimensions but the first, as Step::minimize expects it. With LossShape::kPerElement there is no
// averaging. The result then has one value per element (token, pixel, ...), for a minimize with
// weights of that shape.
//
// Losses are computed in float32 or wider, even if autocast produced outputs of fewer bits. An
// empty batch returns shape [0]. Invalid shapes are a c10::Error of one sentence. Arguments are
// never broadcast against each other. Call these functions as muster::..., because LibTorch has
// some of the same names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace muster {

enum class LossShape {
  kPerExample,  // [batch]
  kPerElement,  // The shape of the targets. Elements that cross_entropy ignores are 0.
};

struct CrossEntropyOptions {
  // The dimension of classes in the logits, as in torch: [batch, classes] or [batch, classes,
  // tokens...]. -1 for [batch, tokens..., classes].
  int64_t class_dim = 1;
  // Elements with this label have no loss and do not count in the mean.
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // In [0, 1].
  LossShape shape = LossShape::kPerExample;
};
// Softmax cross entropy of logits. `labels` are integer class numbers, [batch] or [batch,
// tokens...], or floating-point probabilities of the logits' shape. ignore_index has no effect on
// probabilities. The mean covers the elements of an example that are not ignored, and is 0 if all
// are.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  bool from_logits = true;     // False: outputs are probabilities, clamped to [1e-7, 1 - 1e-7].
  double label_smoothing = 0;  // In [0, 1]. A target t becomes t (1 - s) + s / 2.
  LossShape shape = LossShape::kPerExample;
};
// Sigmoid cross entropy. Targets are from 0 to 1 and have the outputs' shape.
at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& targets,
                                const BinaryCrossEntropyOptions& options = {});

// Outputs and targets must have the same shape.
at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets,
                              LossShape shape = LossShape::kPerExample);
at::Tensor mean_absolute_error(const at::Tensor& outputs, const at::Tensor& targets,
                               LossShape shape = LossShape::kPerExample);
// max(0, 1 - target * output), for targets -1 and 1. A target of 0 counts as -1.
at::Tensor hinge(const at::Tensor& outputs, const at::Tensor& targets,
                 LossShape shape = LossShape::kPerExample);
// error^2 / 2 if |error| is below delta, otherwise delta * (|error| - delta / 2).
at::Tensor huber(const at::Tensor& outputs, const at::Tensor& targets, double delta = 1,
                 LossShape shape = LossShape::kPerExample);

}  // namespace muster
