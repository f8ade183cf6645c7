// The training loop of one replica. A replica is one device's copy of the model, with its own
// thread. The loop makes steps, ends epochs, runs validation and test passes, and saves
// checkpoints. It also calls hooks. A hook is a method of a callback, such as epoch_end. Parts of
// the loop have files of their own (loop_*.h).
//
// A generation is a period of training with fixed members. It ends when a member is lost or joins.
// Every replica of a generation runs this loop. All replicas take the same decisions, because each
// decision depends only on numbers that are reduced over all replicas.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/train/evaluation.h"
#include "common/train/loop/loop_backend.h"
#include "common/train/loop/loop_callbacks.h"
#include "common/train/loop/loop_context.h"
#include "common/train/loop/loop_input.h"
#include "common/train/loop/loop_reports.h"
#include "common/train/step/single_example.h"
#include "common/train/step/step.h"

namespace muster {

class LoopImpl final : public LoopBackend {
 public:
  // `state` belongs to this replica only. This object updates `state` after each completed step and
  // each pass. The loop of a later generation continues from `state`. All pointers and references
  // must outlive this object. REQUIRES: state->global_batch_size is set.
  LoopImpl(const LoopContext& context, Replica* replica, collective::Communicator* communicator,
           int local_index, const TrainData& data, LoopState* state);
  ~LoopImpl() override;

  // Receives the newest state from the replica that has it. Then calls the program's run(). Returns
  // OK at the end of training, and Preempted if all replicas stopped on request. After an error,
  // returns the error.
  absl::Status Run();

  void Fit() override;
  bool Next(data::Batch* batch, int64_t steps) override;
  bool NextOf(DatasetHandle dataset, data::Batch* batch) override;
  StepOutcome RunStep(const LoopBody& body) override;
  Nested Call(const std::function<Nested()>& function) override;
  void Finish() override;
  std::map<std::string, double> Evaluate(Split split) override;
  Nested Reduce(ReduceOp op, const Nested& value, std::optional<int64_t> axis) override;
  Nested Gather(const Nested& value, int64_t axis) override;
  std::vector<Nested> LocalResults(const Nested& value) override;
  ReplicaContext context() const override {
    return {loop_.global_index(), context_.num_replicas, replica_->device()};
  }
  int64_t steps() const override { return state_.step; }
  int64_t epoch() const override { return state_.epoch; }
  bool epoch_begins() const override { return state_.epoch_begins(); }
  int64_t steps_left() const override;

 private:
  // Receives the state with which the generation starts. The owner (LoopContext::owner_replica)
  // sends this state.
  void TakeOverState();
  // Returns the status Preempted for a requested stop. The message names the newest completed step.
  absl::Status Stopped() const;
  // Ends training if the program's run() returned before the end of the job.
  void EndRun();
  // Updates the LoopState after a completed step. Reports the step, and saves the state if the
  // checkpoint sink wants it.
  void Commit(const StepResult& result);
  // Reports the end of an epoch, or the end of training in the middle of an epoch. Marks the passes
  // that are due.
  void EndEpoch();
  // Saves the state if the checkpoint sink wants it (SaveIfWanted). Called by all replicas. The
  // arguments are fields of SaveRequest.
  void Save(bool again = true, bool best = false);
  // Makes the validation and test passes that are due. Makes no pass if a stop was requested.
  void RunDuePasses();
  // Makes one pass and returns its metrics. Returns nullopt if a stop was requested.
  std::optional<std::map<std::string, double>> Pass(Split split);
  bool IsFinished() const { return loop_.IsFinished(); }
  // Returns true if the validation pass after the newest completed step is complete.
  bool HasValidated() const { return state_.last_passes.contains(SplitName(Split::kValidation)); }
  // Calls the hooks for the end of a step. If a hook requests the end of training in the middle of
  // an epoch, ends the epoch.
  void AfterStep();
  // Calls the hooks that are due before the next step: the hooks for the end of the last step, of
  // its epoch and of training.
  void Settle();
  // Saves the final state of a run with callbacks. Does nothing if training has not ended, or if a
  // hook or pass at the end of training is still due.
  void SaveEnd();

  const LoopReplica loop_;
  // The parts of loop_ that this class uses most.
  const LoopContext& context_;
  Replica* const replica_;
  collective::Communicator* const communicator_;
  LoopState& state_;
  const std::unique_ptr<StepRunner> runner_;
  LoopReports reports_;
  LoopCallbacks callbacks_;
  std::optional<LoopInput> input_;  // Set by Run, after this replica has received its state.
  // True after this object's first step. A BatchNormWatch (step/single_example.h) observes that
  // step.
  bool watched_ = false;
  bool stop_ = false;  // True if all replicas must stop on request.
  // True once the program calls Fit, which makes passes at the ends of epochs.
  bool fitting_ = false;
  bool end_saved_ = false;  // True after SaveEnd has called Save.
};

}  // namespace muster
