// The gradients of a step, from the backward pass to the update of parameters: the loss scale, the
// reduction over replicas or the push to servers, and the update. Internal to common/train. Used by
// the replica's thread. All replicas of the generation make the same calls, because most of them
// communicate.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/train/embedding/embedding_step.h"
#include "common/train/replica/precision.h"
#include "common/train/replica/replica.h"
#include "common/train/step/step.h"
#include "common/train/step/step_collectives.h"
#include "common/train/step/step_losses.h"

namespace muster {

// What gradients are computed and reduced with. All must outlive the StepGradients.
struct GradientParts {
  Replica* replica;
  collective::Communicator* communicator;
  EmbeddingStep* embeddings;
  StepCollectives* collectives;
  const std::function<void(Phase)>* on_phase;  // Called around a wait. It may be empty.
};

class StepGradients {
 public:
  StepGradients(const GradientParts& parts, Precision precision)
      : parts_(parts), scaler_(precision) {}

  // Begins the step of `plan`, also for a second time.
  void Begin(const StepPlan& plan);

  struct Pass {
    bool first = true, last = true;  // True in the first and in the last micro-batch of the step.
    // As GradientSink::Reduction::early.
    bool early = false;
    bool overlaps = false;    // Reduce during the backward pass.
    bool keep_graph = false;  // Another backward pass needs the graph.
  };
  // Computes the gradients of an optimizer, and adds them to those of earlier micro-batches. Before
  // that, multiplies those earlier gradients, and the ones of all table rows, by `goal.rescale`.
  // Throws StatusError, or an error of LibTorch.
  void Backward(const Goal& goal, const Pass& pass);

  // Sends the gradients of table rows to the replicas that own the rows.
  absl::Status ExchangeRows();
  // Reduces the gradients of the optimizers, and blocks until they are complete. `control` is an
  // argument of GradientSink::Finish. Without optimizers, reduces only `control`. If a gradient
  // that servers would apply is not finite, reduces nothing, and the step is skipped.
  absl::Status Reduce(const std::vector<int>& optimizers, at::Tensor* control);
  // Updates the parameters of the optimizers with reduced gradients. If a gradient is not finite,
  // updates none, and the step is skipped.
  absl::Status Update(const std::vector<int>& optimizers);
  // Makes the last updates of the step: those of the optimizers and of table rows. Called when no
  // replica can take the step back.
  absl::Status Commit(const std::vector<int>& optimizers);
  // Ends a committed step. Adapts the loss scale, and sets the fields of `result` about gradients
  // and learning rates.
  void End(StepResult* result);

  // Returns true for parameter servers, which make the updates.
  bool on_servers() const;
  // The time in seconds for which this replica waited for reductions since ResetWait.
  double wait_seconds() const { return wait_seconds_; }
  void ResetWait() { wait_seconds_ = 0; }
  LossScaler& scaler() { return scaler_; }

 private:
  NamedOptimizer& optimizer(int index) const { return parts_.replica->optimizers()[index]; }
  void Enter(Phase phase) const {
    if (*parts_.on_phase) (*parts_.on_phase)(phase);
  }

  const GradientParts parts_;
  LossScaler scaler_;
  int64_t steps_done_ = 0;
  bool wants_norms_ = false;
  bool skipped_ = false;                 // float16: a gradient of the step is not finite.
  std::map<std::string, double> norms_;  // Before clipping, keyed by optimizer.
  double wait_seconds_ = 0;
};

}  // namespace muster
