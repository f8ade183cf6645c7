#include "common/train/step/losses/loss_terms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "muster/error.h"

namespace muster {

double LossWeights::PerExample() const {
  switch (reduction) {
    case LossReduction::kGlobal:
      return 1.0 / static_cast<double>(std::max<int64_t>(1, global_examples));
    case LossReduction::kNominal:
      return 1.0 / static_cast<double>(global_batch_size);
    case LossReduction::kLocalMean:
      return 1.0 / (static_cast<double>(num_replicas) *
                    static_cast<double>(std::max<int64_t>(1, local_examples)));
  }
  return 1.0;
}

double LossWeights::Nominal(const at::Tensor& value) const {
  int64_t elements = 1;
  for (int64_t d = 1; d < value.dim(); ++d) elements *= value.size(d);
  return PerExample() / static_cast<double>(std::max<int64_t>(1, elements));
}

std::string ShapeOf(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "undefined";
}

void CheckPerExample(const at::Tensor& value, int64_t examples, const std::string& what) {
  if (value.defined() && value.dim() == 1 && value.size(0) == examples) return;
  throw StatusError(ProgramError(fmt::format(
      "{} needs one value for each example, shape [{}], and got shape {}: do not reduce over the "
      "batch{}",
      what, examples, value.defined() ? ShapeOf(value) : "[undefined]",
      value.defined() && value.dim() > 1 ? ", and average over the other dimensions or give weights"
                                         : "")));
}

void CheckWeighted(const at::Tensor& value, const at::Tensor& weights, int64_t examples,
                   const std::string& what) {
  if (!value.defined() || value.dim() == 0 || value.size(0) != examples) {
    throw StatusError(ProgramError(
        fmt::format("{} must have the {} examples as its first dimension, and has shape {}", what,
                    examples, ShapeOf(value))));
  }
  if (weights.sizes() != value.sizes()) {
    throw StatusError(ProgramError(
        fmt::format("{} has shape {} and its weights have {}: give one weight for each value", what,
                    ShapeOf(value), ShapeOf(weights))));
  }
}

at::Tensor WideLoss(const at::Tensor& loss) {
  return loss.scalar_type() == at::kFloat || loss.scalar_type() == at::kDouble
             ? loss
             : loss.to(at::kFloat);
}

at::Tensor WeightedLoss(const at::Tensor& value, const at::Tensor& weights) {
  const at::Tensor w = weights.detach().to(value.scalar_type());
  return at::where(w.ne(0), value * w, at::zeros({}, value.options()));
}

at::Tensor WideSum(const at::Tensor& value) { return value.detach().sum(at::kDouble); }

void AddTo(at::Tensor* sum, const at::Tensor& value) {
  *sum = sum->defined() ? *sum + value : value;
}

}  // namespace muster
