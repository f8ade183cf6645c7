// The losses of a step. A program gives losses for each example, with weights or without, and terms
// to add to them. StepLosses checks them, and makes the objective of each optimizer from them: a
// scalar, of which the objectives of all replicas and micro-batches add up to that of the global
// batch. Internal to common/train. Used by the replica's thread.
//
// If a loss has weights, the divisor of its gradients is the sum of the weights over the whole
// step, which is known in the last micro-batch. Until then, an objective is divided by an estimate.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/train/replica/replica.h"
#include "common/train/step/loss_terms.h"
#include "common/train/step/step_collectives.h"
#include "muster/step.h"

namespace muster {

// The objective of an optimizer in one micro-batch.
struct Goal {
  int optimizer;
  at::Tensor objective;
  // The factor for the optimizer's gradients of earlier micro-batches. Set in the last micro-batch,
  // if the divisor was an estimate before.
  std::optional<double> rescale = {};
  void Add(const at::Tensor& term) { objective = objective.defined() ? objective + term : term; }
};

// Returns true if `optimizers` has the index `one`.
inline bool Contains(const std::vector<int>& optimizers, int one) {
  return std::find(optimizers.begin(), optimizers.end(), one) != optimizers.end();
}

class StepLosses {
 public:
  // Both must outlive this object.
  StepLosses(const Replica* replica, StepCollectives* collectives)
      : replica_(replica), collectives_(collectives) {}

  // Begins a step, and discards what is left of the one before.
  void Begin(const LossWeights& weights);
  // Begins micro-batch `index` of `count`, which has `examples` examples on this replica.
  void BeginMicroBatch(int index, int count, int64_t examples);

  // The next minimize() adds these to the loss of the optimizer, or of the program's only optimizer
  // if `optimizer` is null. They throw StatusError.
  void AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer);
  // Returns true if such a loss was added after the last minimize().
  bool has_unused_extras() const { return !extra_losses_.empty() || !regularizers_.empty(); }

  // Checks the arguments of minimize(). `minimized` has the optimizers of earlier calls in this
  // micro-batch. Throws StatusError.
  void Check(const std::vector<Objective>& objectives, const std::vector<int>& minimized) const;
  // Returns one goal for each optimizer of `objectives`. In the last micro-batch, reduces the
  // weights if the divisor is over all replicas. Throws StatusError. REQUIRES: Check passed.
  std::vector<Goal> Goals(const std::vector<Objective>& objectives);

  // Returns the sum of this replica's objectives in the step, in double precision, or an undefined
  // tensor if there was none.
  const at::Tensor& objective_sum() const { return objective_sum_; }

 private:
  // A loss of add_loss() or regularize(), which the next minimize() adds.
  struct Extra {
    at::Tensor loss;
    int optimizer;  // -1 for the program's only optimizer.
  };
  // The weighted losses of one optimizer over all micro-batches. Their divisor is known in the last
  // micro-batch.
  struct WeightedSum {
    at::Tensor loss, weights;  // Sums over this replica, in double precision.
    double provisional = 0;    // Estimated divisor, by which the gradients so far are divided.
    std::vector<at::Tensor> regularizers;
  };
  bool in_last() const { return micro_batch_ + 1 == micro_batches_; }
  const std::string& NameOf(int optimizer) const { return replica_->optimizers()[optimizer].name; }
  int IndexOf(OptimizerHandle handle, const char* call) const;
  // Returns the optimizers of `objectives`, after the checks of each objective. Sets `*weighted` to
  // true if the sums of an objective accumulate over micro-batches, and checks by its earlier
  // value.
  std::vector<int> CheckEach(const std::vector<Objective>& objectives, bool* weighted) const;
  void CheckExtras(const std::vector<int>& optimizers) const;
  // Returns true if a parameter of the optimizer requires a gradient, or the program has tables.
  bool TrainsAnything(int optimizer) const;
  // Returns the sum of losses without weights.
  at::Tensor Plain(const at::Tensor& per_example);
  // Returns the factor for the weighted sum of each objective.
  std::vector<double> WeightScales(const std::vector<Objective>& objectives);
  // Returns the factor for one objective, the weights of which sum to `sum`.
  double ScaleOf(int optimizer, double sum);
  // Adds this micro-batch to the weighted loss of an optimizer. Adds a term to `goal`, and sets its
  // `rescale` in the last micro-batch if the gradients so far have an estimated divisor.
  void Accumulate(const Objective& objective, double scale, Goal* goal);
  void AddExtras(Goal* goal);

  const Replica* const replica_;
  StepCollectives* const collectives_;
  LossWeights weights_;
  int micro_batch_ = 0, micro_batches_ = 1;
  int64_t examples_ = 0;  // This replica's examples in the micro-batch.
  at::Tensor objective_sum_;
  std::vector<Extra> extra_losses_, regularizers_;
  std::map<int, WeightedSum> weighted_;  // Keyed by optimizer.
};

}  // namespace muster
