// Functions for the losses of a step: checks of shapes, sums in double precision, and the weight of
// an example. The weight depends on the job's loss_reduction (common/job/job.h). A replica is one
// device's copy of the model. Internal to common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "common/job/job.h"

namespace muster {

// The numbers that determine the weight of an example in a step.
struct LossWeights {
  LossReduction reduction = LossReduction::kGlobal;
  int num_replicas = 1;
  bool reduces = false;           // True if the communicator connects several replicas.
  int64_t global_batch_size = 1;  // Examples in a full batch.
  int64_t global_examples = 0;    // Examples in the batch of this step.
  int64_t local_examples = 0;     // Examples of this replica in the batch.

  // Returns the weight of one example in the objective, the scalar loss of the step.
  double PerExample() const;
  // Returns the factor for the weighted sum of the elements of `value`, of shape [examples, ...].
  // Used if `reduction` is kNominal.
  double Nominal(const at::Tensor& value) const;
  // Returns true if a weighted sum is divided by the sum of its weights.
  bool DividesByWeights() const { return reduction != LossReduction::kNominal; }
  // Returns true if the divisor of a weighted sum is a sum over all replicas.
  bool OverReplicas() const { return reduction == LossReduction::kGlobal && reduces; }
  // Returns the factor by which this replica's weighted mean is multiplied before the sum over all
  // replicas.
  double Share() const { return reduction == LossReduction::kLocalMean ? 1.0 / num_replicas : 1.0; }
};

// CheckPerExample checks that `value` has the shape [examples]. CheckWeighted checks that the first
// dimension of `value` is `examples`, and that `weights` has the shape of `value`. A failed check
// throws a ProgramError that begins with `what`.
void CheckPerExample(const at::Tensor& value, int64_t examples, const std::string& what);
void CheckWeighted(const at::Tensor& value, const at::Tensor& weights, int64_t examples,
                   const std::string& what);
// Returns the shape as text for an error message, or "undefined".
std::string ShapeOf(const at::Tensor& tensor);

// Returns `loss` if its type is float32 or float64. Otherwise returns `loss` converted to float32.
at::Tensor WideLoss(const at::Tensor& loss);
// Returns value * weight for each element. The result is 0 where the weight is 0, even if the value
// is NaN.
at::Tensor WeightedLoss(const at::Tensor& value, const at::Tensor& weights);
// Returns the sum of all elements in double precision, detached from the graph.
at::Tensor WideSum(const at::Tensor& value);
// Adds `value` to `*sum`. If `*sum` is undefined, sets it to `value`.
void AddTo(at::Tensor* sum, const at::Tensor& value);

}  // namespace muster
