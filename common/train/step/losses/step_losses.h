// The losses of a step. A micro-batch is a part of the replica's slice of the batch. In each
// micro-batch, a program passes one loss for each example, optionally with weights, and terms to
// add to the loss. StepLosses checks the losses and terms, and computes the objective of each
// optimizer. An objective is a scalar. The sum of an optimizer's objectives over all replicas and
// micro-batches is its loss of the global batch. A replica is one device's copy of the model, with
// its own thread. Internal to common/train. Used by the replica's thread.
//
// A loss with weights is divided by the sum of the weights over the whole step. This sum is known
// only in the last micro-batch. In earlier micro-batches, objectives are divided by an estimate.
// The last micro-batch corrects the gradients of the earlier micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/train/replica/replica.h"
#include "common/train/step/losses/loss_terms.h"
#include "common/train/step/losses/step_collectives.h"
#include "muster/step.h"

namespace muster {

// The objective of an optimizer in one micro-batch.
struct Goal {
  int optimizer;  // The index of the optimizer.
  at::Tensor objective;
  // The factor that corrects the optimizer's gradients of earlier micro-batches. Set in the last
  // micro-batch, if the earlier divisor was an estimate.
  std::optional<double> rescale = {};
  // Adds `term` to the objective.
  void Add(const at::Tensor& term) { objective = objective.defined() ? objective + term : term; }
};

// Returns true if `optimizers` contains the index `one`.
inline bool Contains(const std::vector<int>& optimizers, int one) {
  return std::find(optimizers.begin(), optimizers.end(), one) != optimizers.end();
}

class StepLosses {
 public:
  // The arguments must outlive this object.
  StepLosses(const Replica* replica, StepCollectives* collectives)
      : replica_(replica), collectives_(collectives) {}

  // Begins a step. Discards everything from the previous step.
  void Begin(const LossWeights& weights);
  // Begins micro-batch `index` of `count`, which has `examples` examples on this replica.
  void BeginMicroBatch(int index, int count, int64_t examples);

  // Add a term, which the next minimize() adds to the loss of the optimizer. AddLoss adds one loss
  // for each example, and Regularize a scalar. If `optimizer` is null, the term is for the only
  // optimizer of the next minimize(). Both throw StatusError.
  void AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer);
  // Returns true if there is a term that no minimize() has used yet.
  bool has_unused_extras() const { return !extra_losses_.empty() || !regularizers_.empty(); }

  // Checks the arguments of minimize(). `minimized` has the optimizers of earlier minimize() calls
  // in this micro-batch. Throws StatusError.
  void Check(const std::vector<Objective>& objectives, const std::vector<int>& minimized) const;
  // Returns one goal for each optimizer of `objectives`. In the last micro-batch, sums the weights
  // over all replicas if LossWeights::OverReplicas() is true. Throws StatusError. REQUIRES: Check
  // has passed.
  std::vector<Goal> Goals(const std::vector<Objective>& objectives);

  // Returns the sum of this replica's objectives in the step, in double precision. Undefined if
  // there was no objective.
  const at::Tensor& objective_sum() const { return objective_sum_; }

 private:
  // A term that the next minimize() adds.
  struct Extra {
    at::Tensor loss;
    int optimizer;  // -1 for the only optimizer of the next minimize().
  };
  // The sum of the weighted losses of one optimizer over the micro-batches so far.
  struct WeightedSum {
    at::Tensor loss, weights;  // Sums over this replica, in double precision.
    // The estimated divisor of the gradients so far. 0 if there is no estimate yet.
    double provisional = 0;
    std::vector<at::Tensor> regularizers;  // Terms that the last micro-batch adds.
  };
  bool in_last() const { return micro_batch_ + 1 == micro_batches_; }
  const std::string& NameOf(int optimizer) const { return replica_->optimizers()[optimizer].name; }
  // Returns the index of an optimizer. `call` names the program's call, for errors.
  int IndexOf(OptimizerHandle handle, const char* call) const;
  // Checks each objective. Returns the optimizers of `objectives`, each once. `*weighted` must be
  // true if an earlier objective has weights that are summed over micro-batches. Sets `*weighted`
  // to true if one of `objectives` has such weights.
  std::vector<int> CheckEach(const std::vector<Objective>& objectives, bool* weighted) const;
  // Throws if a term names no optimizer and minimize() has several optimizers.
  void CheckExtras(const std::vector<int>& optimizers) const;
  // Returns true if a parameter of the optimizer requires a gradient, or the program has embedding
  // tables.
  bool TrainsAnything(int optimizer) const;
  // Returns the objective of losses without weights, and adds it to objective_sum_.
  at::Tensor Plain(const at::Tensor& per_example);
  // Returns the factor for the weighted sum of each objective. 0 for an objective without weights.
  std::vector<double> WeightScales(const std::vector<Objective>& objectives);
  // Returns the factor for an objective whose weights have the sum `sum`.
  double ScaleOf(int optimizer, double sum);
  // Adds the weighted loss of this micro-batch to weighted_ and to `goal`. In the last micro-batch,
  // sets `goal->rescale` if the gradients so far have an estimated divisor.
  void Accumulate(const Objective& objective, double scale, Goal* goal);
  // Adds the terms of the goal's optimizer to the goal.
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
