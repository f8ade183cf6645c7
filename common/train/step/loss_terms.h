// Functions of the losses of a step: their shapes, their sums in double precision, and the weight
// of an example, as the job's loss_reduction says. Internal to common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "common/job/job.h"

namespace muster {

// What determines the weight of an example in a step.
struct LossWeights {
  LossReduction reduction = LossReduction::kGlobal;
  int num_replicas = 1;
  bool reduces = false;           // True if the communicator connects several replicas.
  int64_t global_batch_size = 1;  // The size of a full batch.
  int64_t global_examples = 0;    // Examples in this step's batch.
  int64_t local_examples = 0;     // Those of this replica.

  // Returns the weight of one example in the objective.
  double PerExample() const;
  // Returns the factor for a weighted sum over `value` in the mode kNominal.
  double Nominal(const at::Tensor& value) const;
  // Returns true if weighted sums are divided by the sum of the weights.
  bool DividesByWeights() const { return reduction != LossReduction::kNominal; }
  // Returns true if that sum is over all replicas.
  bool OverReplicas() const { return reduction == LossReduction::kGlobal && reduces; }
  // Returns the factor for this replica's weighted mean.
  double Share() const { return reduction == LossReduction::kLocalMean ? 1.0 / num_replicas : 1.0; }
};

// These throw a ProgramError that begins with `what`. CheckPerExample checks that `value` has the
// shape [examples]. CheckWeighted checks that its first dimension has this size, and that `weights`
// has the same shape.
void CheckPerExample(const at::Tensor& value, int64_t examples, const std::string& what);
void CheckWeighted(const at::Tensor& value, const at::Tensor& weights, int64_t examples,
                   const std::string& what);
// Returns the shape for an error message, or "undefined".
std::string ShapeOf(const at::Tensor& tensor);

// Converts to float32 unless the type is float32 or float64.
at::Tensor WideLoss(const at::Tensor& loss);
// Returns value x weight. A value with weight 0 does not count, even if it is NaN.
at::Tensor WeightedLoss(const at::Tensor& value, const at::Tensor& weights);
// Returns the sum in double precision, without a graph.
at::Tensor WideSum(const at::Tensor& value);
// Adds to a sum, which is undefined at first.
void AddTo(at::Tensor* sum, const at::Tensor& value);

}  // namespace muster
