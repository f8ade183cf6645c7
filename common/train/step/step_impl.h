// The implementation of a step (step.h). step.cc runs a step as a transaction. step_minimize.cc has
// minimize(), and step_calls.cc has the other calls of a program. The headers included below
// document the parts of a step. Internal to common/train.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/train/embedding/embedding_step.h"
#include "common/train/step/losses/step_collectives.h"
#include "common/train/step/losses/step_losses.h"
#include "common/train/step/step.h"
#include "common/train/step/step_buffers.h"
#include "common/train/step/step_control.h"
#include "common/train/step/step_gradients.h"
#include "common/train/step/step_random.h"
#include "common/train/step/step_undo.h"
#include "common/train/summary_data.h"

namespace muster {

class StepImpl : public StepRunner {
 public:
  StepImpl(Replica* replica, collective::Communicator* communicator, const Job& job,
           StepRunnerOptions options)
      : replica_(replica),
        communicator_(communicator),
        job_(job),
        options_(std::move(options)),
        embeddings_(replica, communicator),
        collectives_(std::make_shared<StepCollectives>(communicator)),
        buffers_(replica, communicator),
        losses_(replica, collectives_.get()),
        gradients_({replica, communicator, &embeddings_, collectives_.get(), &options_.on_phase},
                   job.precision),
        control_(replica, communicator, &buffers_),
        random_(replica, &job_, &options_),
        undo_(replica, &buffers_) {}

  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const Body& body) override;
  void Begin() override { buffers_.Begin(); }
  std::vector<double> scaler_state() const override { return gradients_.scaler().state(); }
  void set_scaler_state(const std::vector<double>& state) override {
    gradients_.scaler().set_state(state);
  }

  // Called by muster::Step, for the program.
  void Minimize(const std::vector<Objective>& objectives);
  void AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer);
  void Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights);
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                    const at::Tensor& weights);
  at::Generator Generator() { return random_.Generator(); }
  // Returns the collective operations of the step. With parameter servers, where workers do not
  // synchronise, throws an error that names the program's call `call`.
  StepCollectives& Collectives(const char* call);
  // Returns the step whose program code the calling thread runs, or null.
  static StepImpl* Current();
  // While a Scope exists in a thread, Current() returns the Scope's step in that thread.
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
  // Throws StatusError if a Repeated exists. `call` names the program's call.
  void RefuseRepeated(const char* call) const;
  const std::vector<at::Tensor>& buffers() const { return buffers_.tensors(); }
  // Returns the number of this replica's examples in the micro-batch.
  int64_t examples() const { return micro_examples_; }
  // Returns a pointer that expires with this object. An autograd graph of the program may outlive
  // this object. The functions of the graph therefore check the pointer.
  std::weak_ptr<const int> life() const { return life_; }
  int replica() const { return options_.replica; }
  int num_replicas() const { return options_.num_replicas; }

  Replica* const replica_;
  collective::Communicator* const communicator_;
  const Job& job_;
  const StepRunnerOptions options_;
  StepPlan plan_;
  // The program's functions to call when the step has completed (Step::on_commit).
  std::vector<std::function<void()>> on_commit_;
  EmbeddingStep embeddings_;
  const std::shared_ptr<StepCollectives> collectives_;
  SummaryData summary_;  // Belongs to the current step.

 private:
  // Discards everything that was collected for a step. Called before each run of the step's program
  // code.
  void Reset();
  // Calls `body` for each micro-batch.
  absl::Status RunMicroBatches(const data::Batch& batch, const Body& body);
  // `first` has the optimizers for which the first micro-batch called minimize(), in order. Returns
  // an error if this micro-batch has called minimize() for other optimizers or in another order.
  absl::Status CheckMinimized(const std::vector<int>& first) const;
  const std::string& NameOf(int optimizer) const { return replica_->optimizers()[optimizer].name; }
  bool in_last() const { return micro_batch_ + 1 == micro_batches_; }
  // Returns the numbers that determine the weights of this step's examples.
  LossWeights Weights() const;

  // ---- minimize()
  // Returns the optimizers of `objectives`, each once.
  std::vector<int> OptimizersOf(const std::vector<Objective>& objectives) const;
  // Computes the gradients of one optimizer from its objective.
  void Backward(const Goal& goal, bool keep_graph);
  // Reduces gradients and updates the optimizers, in immediate mode (immediate_).
  void UpdateNow(const std::vector<int>& optimizers);
  // Switches to immediate mode in the middle of a step that cannot be repeated.
  void SwitchToImmediate();

  // ---- The commit: the last reduction and the updates after it
  // Makes the last reduction of the step, and completes the step.
  absl::Status Commit(StepResult* result);
  // Logs a warning about parameters that have no gradient. Called in the first step of the run.
  void WarnOfUnused() const;
  // Rolls the step back. Returns `why`, or an error that also says that the roll-back failed.
  absl::Status TakeBack(const absl::Status& why);
  void Enter(Phase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  const std::shared_ptr<const int> life_ = std::make_shared<const int>(0);
  int repeated_ = 0;
  bool immediate_ = false;  // True in immediate mode: minimize() itself updates the parameters.
  // True after the first completed step. From then on, the number of minimize() calls in a step is
  // known.
  bool settled_ = false;
  StepBuffers buffers_;
  StepLosses losses_;
  StepGradients gradients_;
  StepControl control_;
  StepRandom random_;
  StepUndo undo_;

  // The fields below belong to the current step.
  int64_t local_examples_ = 0, micro_examples_ = 0;
  int micro_batch_ = 0, micro_batches_ = 1;
  std::vector<int> minimized_;  // Optimizers minimized in this micro-batch.
  std::vector<int> updated_;    // Optimizers that this step has already updated.
  std::vector<int> deferred_;   // Optimizers to update at the commit.
  // The stage of the current step, which limits how the step may end.
  enum class Stage {
    kOpen,         // The step may complete, or be rolled back.
    kStartsAgain,  // The step is rolled back, and repeated in immediate mode.
    kCommitted,    // The last reduction is complete. The step can no longer be rolled back.
  };
  Stage stage_ = Stage::kOpen;
};

}  // namespace muster
