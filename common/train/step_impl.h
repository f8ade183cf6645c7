// The inside of a step: StepRunner's half in step.cc (the transaction), the half that a program
// calls in step_calls.cc. Internal to this folder.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/train/embedding_step.h"
#include "common/train/precision.h"
#include "common/train/step.h"
#include "common/train/summary_data.h"

namespace muster {

class StepImpl {
 public:
  StepImpl(Replica* replica, Communicator* communicator, const Job& job, StepRunnerOptions options)
      : replica_(replica),
        communicator_(communicator),
        job_(job),
        options_(std::move(options)),
        scaler_(job.precision),
        embeddings_(replica, communicator) {
    for (const NamedModel& model : replica_->models()) {
      for (const auto& [name, buffer] : model.buffers) buffers_.push_back(buffer);
    }
  }

  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const StepRunner::Body& body);

  // What Step forwards.
  void Minimize(OptimizerHandle handle, const at::Tensor& per_example_loss);
  void AddLoss(const at::Tensor& loss);
  void Regularize(const at::Tensor& loss);
  void Report(const std::string& name, const at::Tensor& value);
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target);
  at::Generator Generator();
  int replica() const { return plan_.num_replicas > 0 ? plan_.replica : options_.replica; }
  int num_replicas() const {
    return plan_.num_replicas > 0 ? plan_.num_replicas : options_.num_replicas;
  }

  Replica* const replica_;
  Communicator* const communicator_;
  const Job& job_;
  const StepRunnerOptions options_;
  StepPlan plan_;
  std::vector<std::function<void()>> on_commit_;
  LossScaler scaler_;
  EmbeddingStep embeddings_;
  SummaryData summary_;  // of the step under way

 private:
  void Reset();
  absl::Status RunMicroBatches(const data::Batch& batch, const StepRunner::Body& body);
  void SeedDefaultGenerator();
  uint64_t ReplicaSeed(uint64_t purpose) const {
    return MixSeed(
        job_.seed,
        {purpose, static_cast<uint64_t>(plan_.steps_done + 1),
         static_cast<uint64_t>(replica() + (plan_.num_replicas > 0 ? 0 : options_.worker)),
         static_cast<uint64_t>(micro_batch_)});
  }
  // What one example weighs in the objective.
  double LossScale() const;
  void CheckPerExample(const at::Tensor& value, const std::string& what) const;
  at::Tensor Objective(const at::Tensor& per_example_loss);
  void Backward(int optimizer, const at::Tensor& objective);
  absl::Status Reduce(int optimizer, at::Tensor* control);
  absl::Status Update(int optimizer);
  // In the middle of a step that cannot start again: from now on each minimize() is one for itself.
  void SwitchToImmediate();
  at::Tensor MakeControl();
  absl::Status ReadControl(const at::Tensor& control, StepResult* result);
  void ApplyBuffers(const at::Tensor& averaged);
  absl::Status ExchangeEmbeddings();
  absl::Status Commit(StepResult* result);
  void RollBack();
  static void Add(at::Tensor* sum, const at::Tensor& value) {
    *sum = sum->defined() ? *sum + value : value;
  }
  void Enter(Phase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  bool start_again_ = false;
  bool immediate_ = false;  // updates are applied at each minimize(), not at the commit
  bool settled_ = false;    // a step has committed: how often the program minimizes is known
  std::vector<at::Tensor> buffers_, buffers_undo_;
  std::vector<at::Tensor> state_undo_;  // of Replica::state(), in immediate mode
  bool state_saved_ = false;

  at::Generator generator_;        // the replica's own, made when first asked for
  bool generator_seeded_ = false;  // for this micro-batch

  // Of the step under way.
  int64_t local_examples_ = 0, micro_examples_ = 0;
  int micro_batch_ = 0, micro_batches_ = 1;
  std::vector<int> minimized_;  // optimizers, in this micro-batch
  std::string shape_;           // what every replica must have done alike
  int deferred_ = -1;           // optimizer whose update waits for the commit
  at::Tensor objective_sum_;
  std::vector<at::Tensor> extra_losses_, regularizers_;
  std::map<std::string, at::Tensor> values_;
  std::map<int, at::Tensor> increments_;  // by metric
  bool skipped_ = false;
  bool committed_ = false;  // past the last reduction
  double wait_seconds_ = 0;
};

// Copies, and putting them back.
std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors);
void CopyBack(const std::vector<at::Tensor>& copies, const std::vector<at::Tensor>& tensors);

}  // namespace muster
