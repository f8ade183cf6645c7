// The gradients of a step, from the backward pass to the update of the parameters. A replica is one
// device's copy of the model, with its own thread. The gradients are either reduced over all
// replicas or pushed to parameter servers. Internal to common/train. Used by the replica's thread.
// All replicas of a generation (a period of training with fixed members) make the same calls,
// because most of the calls communicate.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/train/embedding/embedding_step.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/replica.h"
#include "common/train/step/losses/step_collectives.h"
#include "common/train/step/losses/step_losses.h"
#include "common/train/step/step.h"

namespace muster {

// The objects with which gradients are computed and reduced. All must outlive the StepGradients.
struct GradientParts {
  Replica* replica;
  collective::Communicator* communicator;
  EmbeddingStep* embeddings;
  StepCollectives* collectives;
  // Called with the new phase before and after a wait for replicas or servers. May be empty.
  const std::function<void(Phase)>* on_phase;
};

class StepGradients {
 public:
  StepGradients(const GradientParts& parts, Precision precision)
      : parts_(parts), scaler_(precision) {}

  // Begins the step of `plan`. Called again if the step is rolled back and repeated.
  void Begin(const StepPlan& plan);

  // A backward pass.
  struct Pass {
    bool first = true, last = true;  // True in the first and in the last micro-batch of the step.
    bool early = false;              // The value for GradientSink::Reduction::early.
    bool overlaps = false;           // True if gradients may be reduced during the backward pass.
    bool keep_graph = false;         // True if another backward pass needs the graph.
  };
  // Computes the gradients of an optimizer, and adds them to the gradients of earlier
  // micro-batches. If `goal.rescale` has a value, first multiplies the earlier gradients by that
  // value, including the gradients of embedding rows. Throws StatusError, or an error of LibTorch.
  void Backward(const Goal& goal, const Pass& pass);

  // Sums the gradients of embedding rows over all replicas.
  absl::Status ExchangeRows();
  // Reduces the gradients of `optimizers`, and also reduces `control`, the step's control data
  // (GradientSink::Finish). Blocks until the reductions are complete. If `optimizers` is empty,
  // reduces only `control`. With parameter servers, sends nothing if a float16 gradient is not
  // finite. The step is then skipped.
  absl::Status Reduce(const std::vector<int>& optimizers, at::Tensor* control);
  // Updates the parameters of `optimizers` with the reduced gradients. Updates nothing if a float16
  // gradient is not finite. The step is then skipped.
  absl::Status Update(const std::vector<int>& optimizers);
  // Makes the last updates of the step: the updates of `optimizers` and of embedding rows. Called
  // when the step can no longer be rolled back.
  absl::Status Commit(const std::vector<int>& optimizers);
  // Ends a completed step. Adapts the loss scale. Sets the fields of `result` about gradients and
  // learning rates.
  void End(StepResult* result);

  // Returns true if parameter servers make the updates.
  bool on_servers() const;
  // Returns how many seconds this replica has waited for reductions since ResetWait.
  double wait_seconds() const { return wait_seconds_; }
  void ResetWait() { wait_seconds_ = 0; }
  LossScaler& scaler() { return scaler_; }
  const LossScaler& scaler() const { return scaler_; }

 private:
  NamedOptimizer& optimizer(int index) const { return parts_.replica->optimizers()[index]; }
  void Enter(Phase phase) const {
    if (*parts_.on_phase) (*parts_.on_phase)(phase);
  }

  const GradientParts parts_;
  LossScaler scaler_;
  int64_t steps_done_ = 0;
  bool wants_norms_ = false;
  bool skipped_ = false;  // True if a float16 gradient of the step is not finite.
  // L2 norms of the gradients before clipping, keyed by optimizer.
  std::map<std::string, double> norms_;
  double wait_seconds_ = 0;
};

}  // namespace muster
