// The implementation of a step. step.cc has the transaction, which StepRunner runs. step_losses.cc
// has a program's calls about losses, and step_calls.cc its other calls. Internal to common/train.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/train/embedding/embedding_step.h"
#include "common/train/replica/precision.h"
#include "common/train/step/step.h"
#include "common/train/step/step_buffers.h"
#include "common/train/step/step_collectives.h"
#include "common/train/summary_data.h"

namespace muster {

class StepImpl {
 public:
  StepImpl(Replica* replica, collective::Communicator* communicator, const Job& job,
           StepRunnerOptions options)
      : replica_(replica),
        communicator_(communicator),
        job_(job),
        options_(std::move(options)),
        scaler_(job.precision),
        embeddings_(replica, communicator),
        collectives_(std::make_shared<StepCollectives>(communicator)),
        buffers_(replica, communicator) {}

  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const StepRunner::Body& body);
  void Begin() { buffers_.Begin(); }

  // Called by Step, for the program.
  void Minimize(const std::vector<Objective>& objectives);
  void AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights);
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                    const at::Tensor& weights);
  at::Generator Generator();
  // Returns the collective operations. With parameter servers, where workers do not synchronise,
  // throws an error with the name of the call.
  StepCollectives& Collectives(const char* call);
  // Returns the step whose program code this thread runs, or null.
  static StepImpl* Current();
  // While a Scope exists, Current() returns its step.
  class Scope {
   public:
    explicit Scope(StepImpl* step);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepImpl* const before_;
  };
  // While a Repeated exists, the program runs code that will run a second time
  // (activation_checkpoint). The step then refuses calls that would count twice. `step` may be
  // null.
  class Repeated {
   public:
    explicit Repeated(StepImpl* step) : step_(step) {
      if (step_ != nullptr) ++step_->repeated_;
    }
    ~Repeated() {
      if (step_ != nullptr) --step_->repeated_;
    }
    Repeated(const Repeated&) = delete;
    Repeated& operator=(const Repeated&) = delete;

   private:
    StepImpl* const step_;
  };
  void RefuseRepeated(const char* call) const;
  const std::vector<at::Tensor>& buffers() const { return buffers_.tensors(); }
  // Returns the number of this replica's examples in the micro-batch.
  int64_t examples() const { return micro_examples_; }
  // Returns a pointer that expires with this object. Graphs that may live longer check it.
  std::weak_ptr<const int> life() const { return life_; }
  int replica() const { return options_.replica; }
  int num_replicas() const { return options_.num_replicas; }

  Replica* const replica_;
  collective::Communicator* const communicator_;
  const Job& job_;
  const StepRunnerOptions options_;
  StepPlan plan_;
  std::vector<std::function<void()>> on_commit_;
  LossScaler scaler_;
  EmbeddingStep embeddings_;
  const std::shared_ptr<StepCollectives> collectives_;
  SummaryData summary_;  // Belongs to the current step.

 private:
  void Reset();
  absl::Status RunMicroBatches(const data::Batch& batch, const StepRunner::Body& body);
  void SeedDefaultGenerator();
  // Returns true if the program must not draw from LibTorch's default CPU generator: in a
  // deterministic job, if several replicas share it. The numbers would depend on timing.
  bool MustNotDraw() const;
  absl::Status CheckNothingDrawn() const;
  uint64_t ReplicaSeed(uint64_t purpose) const {
    return MixSeed(job_.seed, {purpose, static_cast<uint64_t>(plan_.steps_done + 1),
                               static_cast<uint64_t>(replica() + options_.worker),
                               static_cast<uint64_t>(micro_batch_)});
  }
  // Returns the weight of one example in the objective.
  double LossScale() const;
  void CheckPerExample(const at::Tensor& value, const std::string& what) const;
  void CheckWeighted(const at::Tensor& value, const at::Tensor& weights,
                     const std::string& what) const;
  int CheckOptimizer(OptimizerHandle handle, const char* call) const;
  void CheckObjectives(const std::vector<Objective>& objectives);
  const std::string& NameOf(int optimizer) const { return replica_->optimizers()[optimizer].name; }
  bool on_servers() const;
  // ---- The objective of an optimizer in one micro-batch, as a scalar.
  struct Goal {
    int optimizer;
    at::Tensor objective;
    void Add(const at::Tensor& term) { objective = objective.defined() ? objective + term : term; }
  };
  // Returns true if a parameter of the optimizer requires a gradient, or the program has tables.
  bool TrainsAnything(int optimizer) const;
  std::vector<Goal> Goals(const std::vector<Objective>& objectives);
  at::Tensor Plain(const at::Tensor& per_example);
  // Returns the factor for the weighted sum of each objective.
  std::vector<double> WeightScales(const std::vector<Objective>& objectives);
  at::Tensor Accumulated(const Objective& objective, double scale);
  void AddExtras(Goal* goal);
  // DividesByWeights returns true if weighted sums are divided by the sum of the weights.
  // WeightsOverReplicas returns true if that sum is over all replicas. WeightedShare returns the
  // factor for this replica's mean.
  bool DividesByWeights() const { return job_.loss_reduction != LossReduction::kNominal; }
  bool WeightsOverReplicas() const {
    return job_.loss_reduction == LossReduction::kGlobal && communicator_->size() > 1;
  }
  double WeightedShare() const;
  // Returns the factor for a weighted sum in the mode kNominal.
  double NominalScale(const at::Tensor& value) const;

  void Backward(const Goal& goal, bool keep_graph);
  absl::Status Reduce(const std::vector<int>& optimizers, at::Tensor* control);
  absl::Status Update(const std::vector<int>& optimizers);
  void UpdateNow(const std::vector<int>& optimizers);
  void WarnOfUnused() const;
  // Switches to immediate mode in the middle of a step that cannot start again.
  void SwitchToImmediate();
  at::Tensor MakeControl();
  absl::Status ReadControl(const at::Tensor& control, StepResult* result);
  absl::Status ExchangeEmbeddings();
  absl::Status Commit(StepResult* result);
  absl::Status TakeBack(const absl::Status& why);
  void RollBack();
  static void Add(at::Tensor* sum, const at::Tensor& value) {
    *sum = sum->defined() ? *sum + value : value;
  }
  void Enter(Phase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  const std::shared_ptr<const int> life_ = std::make_shared<const int>(0);
  int repeated_ = 0;
  bool start_again_ = false;
  bool immediate_ = false;  // Immediate mode: each minimize() applies its update.
  // True after the first commit. The number of minimize() calls in a step is known from then on.
  bool settled_ = false;
  StepBuffers buffers_;
  // In immediate mode: the tensors of Replica::state(), and their undo copies.
  std::vector<at::Tensor> state_, state_undo_;
  bool state_saved_ = false;
  std::vector<bool> requires_grad_;  // Replica::requires_grad() before the step.

  at::Generator generator_;        // The replica's own generator. Made on first use.
  at::Tensor undrawn_;             // The default generator's state after seeding.
  bool generator_seeded_ = false;  // True if it is seeded for this micro-batch.

  // These belong to the current step.
  int64_t local_examples_ = 0, micro_examples_ = 0;
  int micro_batch_ = 0, micro_batches_ = 1;
  std::vector<int> minimized_;  // Optimizers minimized in this micro-batch.
  std::vector<int> updated_;    // Optimizers that this step has already updated.
  std::string shape_;           // The sequence of calls, which must be equal on all replicas.
  std::vector<int> deferred_;   // Optimizers to update at the commit.
  at::Tensor objective_sum_;
  // A loss of add_loss() or regularize(), which the next minimize() adds.
  struct Extra {
    at::Tensor loss;
    int optimizer;  // -1 for the program's only optimizer.
  };
  std::vector<Extra> extra_losses_, regularizers_;
  // The weighted losses of one optimizer over all micro-batches. Their divisor is known in the last
  // micro-batch.
  struct WeightedSum {
    at::Tensor loss, weights;  // Sums over this replica, in double precision.
    double provisional = 0;    // Estimated divisor, by which the gradients so far are divided.
    std::vector<at::Tensor> regularizers;
  };
  std::map<int, WeightedSum> weighted_;
  struct Reported {
    at::Tensor sum, weights;  // `weights` is defined if it is the divisor.
  };
  std::map<std::string, Reported> values_;
  std::map<std::string, double> gradient_norms_;
  std::map<int, at::Tensor> increments_;  // Keyed by metric.
  bool skipped_ = false;
  bool committed_ = false;  // True when the last reduction has completed.
  double wait_seconds_ = 0;
};

// Clone returns copies of the tensors. CopyBack copies `copies` to `tensors`.
std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors);
void CopyBack(const std::vector<at::Tensor>& copies, const std::vector<at::Tensor>& tensors);

}  // namespace muster
