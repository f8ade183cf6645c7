// The training loop of one replica in one generation: the order of steps, epochs, validation and
// test passes, hooks and saves. Its parts are in common/train/loop. Every replica runs the same
// code in its own thread. All replicas take the same decisions, because they decide on reduced
// numbers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/train/evaluation.h"
#include "common/train/loop/loop_callbacks.h"
#include "common/train/loop/loop_context.h"
#include "common/train/loop/loop_input.h"
#include "common/train/loop/loop_reports.h"
#include "common/train/loop_backend.h"
#include "common/train/step/single_example.h"
#include "common/train/step/step.h"

namespace muster {

class LoopImpl final : public LoopBackend {
 public:
  // `state` belongs to this replica only, and its global_batch_size is set. This object updates
  // `state` after each committed step and each pass. A later generation continues from it.
  LoopImpl(const LoopContext& context, Replica* replica, collective::Communicator* communicator,
           int local_index, const TrainData& data, LoopState* state);
  ~LoopImpl() override;

  // Broadcasts the newest state, then calls the program's run(). Returns OK when training has
  // ended, Preempted if all replicas stopped on request, else the error.
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
  int64_t steps() const override { return state_.steps; }
  int64_t epoch() const override { return state_.position.epoch; }
  bool epoch_begins() const override { return state_.epoch_begins(); }
  int64_t steps_left() const override;

 private:
  void TakeOverState();
  absl::Status Stopped() const;
  // Ends training if the program's run() returned before the end of the job.
  void EndRun();
  void Commit(const StepResult& result);
  void EndEpoch();
  // Saves the state if the checkpoint sink wants it. Called by all replicas. The arguments are
  // those of SaveRequest.
  void Save(bool again = true, bool best = false);
  // Makes the validation and test passes that are due, unless a stop is requested.
  void RunDuePasses();
  // Makes one pass and returns its metrics. Returns nullopt if a stop was requested.
  std::optional<std::map<std::string, double>> Pass(Split split);
  bool IsFinished() const { return loop_.IsFinished(); }
  // Returns true if the validation pass after the last step is complete.
  bool HasValidated() const { return state_.last_passes.contains(SplitName(Split::kValidation)); }
  // Calls the hooks for the end of a step. A stop that they request ends the epoch.
  void AfterStep();
  // Calls the hooks that are due between two steps: those for the end of an epoch and for the end
  // of training.
  void Settle();
  // Saves the final state of a run with callbacks, once the hooks and passes at the end of training
  // are complete.
  void SaveEnd();

  const LoopReplica loop_;
  // The parts of loop_ that this class uses most.
  const LoopContext& context_;
  Replica* const replica_;
  collective::Communicator* const communicator_;
  LoopState& state_;
  StepRunner runner_;
  LoopReports reports_;
  LoopCallbacks callbacks_;
  std::optional<LoopInput> input_;  // Made when this replica has the state of the generation.
  bool watched_ = false;            // True after the first step, which a BatchNormWatch observes.
  bool stop_ = false;
  bool fitting_ = false;    // True in Fit(), which makes passes at the ends of epochs.
  bool end_saved_ = false;  // True if SaveEnd has saved in this generation.
};

}  // namespace muster
