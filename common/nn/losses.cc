#include "muster/losses.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <utility>

namespace muster {
namespace {

// Converts values to float32 unless they are float32 or wider.
at::Tensor Wide(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble
             ? values
             : values.to(at::kFloat);
}

// Converts outputs and targets to the wider of their two types.
std::pair<at::Tensor, at::Tensor> Both(const at::Tensor& outputs, const at::Tensor& targets,
                                       const char* name) {
  TORCH_CHECK(outputs.defined() && targets.defined(), name, ": outputs and targets are needed");
  TORCH_CHECK(outputs.sizes() == targets.sizes(), name,
              ": outputs and targets must have one shape, are ", outputs.sizes(), " and ",
              targets.sizes());
  TORCH_CHECK(outputs.dim() >= 1, name,
              ": the outputs are a scalar, and must have the examples as first dimension");
  TORCH_CHECK(outputs.is_floating_point(), name, ": the outputs must be floating-point, are ",
              outputs.scalar_type());
  const at::Tensor wide = Wide(outputs);
  return {wide, targets.to(wide.scalar_type())};
}

at::Tensor Shaped(const at::Tensor& elements, LossShape shape) {
  if (shape == LossShape::kPerElement || elements.dim() <= 1) return elements;
  return elements.flatten(1).mean(1);
}

void CheckSmoothing(double smoothing, const char* name) {
  TORCH_CHECK(smoothing >= 0 && smoothing <= 1, name, ": label_smoothing must be from 0 to 1, is ",
              smoothing);
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options) {
  TORCH_CHECK(logits.defined() && labels.defined(), "cross_entropy: logits and labels are needed");
  TORCH_CHECK(logits.is_floating_point(), "cross_entropy: the logits must be floating-point, are ",
              logits.scalar_type());
  TORCH_CHECK(logits.dim() >= 2,
              "cross_entropy: the logits must be [batch, classes] or [batch, "
              "classes, tokens...], are ",
              logits.sizes());
  TORCH_CHECK(
      options.class_dim == 1 || options.class_dim == -1 || options.class_dim == logits.dim() - 1,
      "cross_entropy: class_dim must be 1 or the last dimension (-1), is ", options.class_dim);
  CheckSmoothing(options.label_smoothing, "cross_entropy");
  const auto classes_second = [&](const at::Tensor& t) { return t.movedim(options.class_dim, 1); };
  const at::Tensor scores = Wide(classes_second(logits));
  const bool probabilities = labels.is_floating_point();
  at::Tensor target;
  if (probabilities) {
    TORCH_CHECK(labels.sizes() == logits.sizes(),
                "cross_entropy: labels of floating-point are probabilities and must have the "
                "logits' shape ",
                logits.sizes(), ", have ", labels.sizes(), "; class numbers must be integers");
    target = classes_second(labels).to(scores.scalar_type());
  } else {
    std::vector<int64_t> expected = scores.sizes().vec();
    expected.erase(expected.begin() + 1);
    TORCH_CHECK(labels.sizes() == at::IntArrayRef(expected), "cross_entropy: with logits ",
                logits.sizes(), " and the classes in dimension ", options.class_dim,
                " the labels must have shape ", at::IntArrayRef(expected), ", have ",
                labels.sizes(), "; class_dim -1 says that the classes are the last dimension");
    target = labels.to(at::kLong);
  }
  // Targets that are probabilities have no index to ignore. LibTorch refuses an ignore_index of 0
  // or more with them.
  const int64_t ignore_index = probabilities ? -100 : options.ignore_index;
  const at::Tensor elements = at::cross_entropy_loss(
      scores, target, /*weight=*/{}, at::Reduction::None, ignore_index, options.label_smoothing);
  if (probabilities || elements.dim() <= 1) return Shaped(elements, options.shape);
  if (options.shape == LossShape::kPerElement) return elements;
  const at::Tensor counted = target.ne(options.ignore_index).flatten(1).sum(1);
  return elements.flatten(1).sum(1) / counted.clamp_min(1);
}

at::Tensor binary_cross_entropy(const at::Tensor& outputs, const at::Tensor& targets,
                                const BinaryCrossEntropyOptions& options) {
  auto [output, target] = Both(outputs, targets, "binary_cross_entropy");
  CheckSmoothing(options.label_smoothing, "binary_cross_entropy");
  if (options.label_smoothing > 0) {
    target = target * (1 - options.label_smoothing) + options.label_smoothing / 2;
  }
  if (options.from_logits) {
    return Shaped(at::binary_cross_entropy_with_logits(output, target, /*weight=*/{},
                                                       /*pos_weight=*/{}, at::Reduction::None),
                  options.shape);
  }
  // LibTorch's binary_cross_entropy refuses to run under autocast, with arguments of any type.
  const at::Tensor p = output.clamp(1e-7, 1 - 1e-7);
  return Shaped(-(target * p.log() + (1 - target) * (1 - p).log()), options.shape);
}

at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets,
                              LossShape shape) {
  const auto [output, target] = Both(outputs, targets, "mean_squared_error");
  return Shaped((output - target).square(), shape);
}

at::Tensor mean_absolute_error(const at::Tensor& outputs, const at::Tensor& targets,
                               LossShape shape) {
  const auto [output, target] = Both(outputs, targets, "mean_absolute_error");
  return Shaped((output - target).abs(), shape);
}

at::Tensor hinge(const at::Tensor& outputs, const at::Tensor& targets, LossShape shape) {
  const auto [output, target] = Both(outputs, targets, "hinge");
  const at::Tensor sign = at::where(target.eq(0), -1, target);
  return Shaped((1 - sign * output).clamp_min(0), shape);
}

at::Tensor huber(const at::Tensor& outputs, const at::Tensor& targets, double delta,
                 LossShape shape) {
  TORCH_CHECK(delta > 0, "huber: delta must be above 0, is ", delta);
  const auto [output, target] = Both(outputs, targets, "huber");
  return Shaped(at::huber_loss(output, target, at::Reduction::None, delta), shape);
}

}  // namespace muster
