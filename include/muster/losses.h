// Losses by their usual names. Each gives one value for each example, shape [batch]: the mean over
// all dimensions but the first, as Step::minimize wants it. With LossShape::kPerElement nothing is
// averaged (one value for each token, pixel, ...), for a minimize with weights of that shape.
//
// They are computed in float32 at least, also where autocast gave outputs of fewer bits. An empty
// batch gives shape [0]. Shapes that cannot be right are a c10::Error of one sentence; no argument
// is broadcast against another. Call them as muster::...: LibTorch has some of these names too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace muster {

enum class LossShape {
  kPerExample,  // [batch]
  kPerElement,  // the targets' shape; what cross_entropy ignores is 0
};

struct CrossEntropyOptions {
  // The logits' dimension of classes, as torch has it: [batch, classes] or
  // [batch, classes, tokens...]. -1 for [batch, tokens..., classes].
  int64_t class_dim = 1;
  int64_t ignore_index = -100;  // elements with this label do not count: no loss, not in the mean
  double label_smoothing = 0;   // in [0, 1]
  LossShape shape = LossShape::kPerExample;
};
// Softmax cross entropy of logits. `labels`: integer class numbers, [batch] or [batch, tokens...];
// or probabilities, floating-point and of the logits' shape (ignore_index means nothing then). The
// mean is over the elements of an example that are not ignored; 0 where all are.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  bool from_logits = true;     // else outputs are probabilities, clamped to [1e-7, 1 - 1e-7]
  double label_smoothing = 0;  // in [0, 1]: targets t become t (1 - s) + s / 2
  LossShape shape = LossShape::kPerExample;
};
// Sigmoid cross entropy; targets from 0 to 1, of the outputs' shape.
at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& targets,
                                const BinaryCrossEntropyOptions& options = {});

// Outputs and targets of one shape.
at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets,
                              LossShape shape = LossShape::kPerExample);
at::Tensor mean_absolute_error(const at::Tensor& outputs, const at::Tensor& targets,
                               LossShape shape = LossShape::kPerExample);
// max(0, 1 - target output), for targets -1 and 1; 0 counts as -1.
at::Tensor hinge(const at::Tensor& outputs, const at::Tensor& targets,
                 LossShape shape = LossShape::kPerExample);
// error^2 / 2 where |error| is below delta, else delta (|error| - delta / 2).
at::Tensor huber(const at::Tensor& outputs, const at::Tensor& targets, double delta = 1,
                 LossShape shape = LossShape::kPerExample);

}  // namespace muster
