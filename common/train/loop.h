// The training loop of one replica in one generation: data, steps, epochs, validation and test
// passes, and saving. Every replica runs the same code in its own thread. All replicas take the
// same decisions, because they decide on reduced numbers.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/pipeline.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/embedding/local_exchange.h"
#include "common/train/evaluation.h"
#include "common/train/loop_backend.h"
#include "common/train/loop_data.h"
#include "common/train/loop_state.h"
#include "common/train/membership.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/checkpointing.h"
#include "common/train/state/snapshot.h"
#include "common/train/step/single_example.h"
#include "common/train/step/step.h"

namespace muster {

class TaskMeter;

// What the loops of all replicas of a process share during one generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  const std::vector<data::DatasetPtr>& named_datasets;  // Indexed by handle.
  Membership* membership;
  const std::vector<Observer*>& observers;
  CheckpointSink* checkpoints;  // Null if the job saves nothing.
  SnapshotTaker* snapshots;
  // The kPerReplica buffers of the last save or restore. Rank 0 sends them to replicas without such
  // buffers.
  StackedBuffers* kept;
  LocalExchange* exchange;
  int num_replicas;   // All replicas of the generation.
  int first_replica;  // Index of this process's first replica in the generation.
  int owner_replica;  // The replica whose state is broadcast.
  int world_size;
  int local_replicas = 1;    // Replicas of this process.
  bool for_servers = false;  // As in StepRunnerOptions.
  SharedPipelines* pipelines = nullptr;
  int replicas_on_host = 1;         // Replicas of all members on this host.
  DamageLog* damage_log = nullptr;  // Lasts for the whole run.
  int declared_replicas = 0;        // Replicas of the whole cluster. Equal in all members.
  TaskMeter* meter = nullptr;       // Null: nothing is measured.
};

// Returns the retryable error for a job that must save its state after `step` and cannot.
absl::Status SaveError(int64_t step, const absl::Status& why);

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
    return {global_replica_, context_.num_replicas, replica_->device()};
  }
  int64_t steps() const override { return state_.steps; }
  int64_t epoch() const override { return state_.position.epoch; }
  bool epoch_begins() const override { return state_.epoch_begins(); }
  int64_t steps_left() const override;

 private:
  bool first_local() const { return local_index_ == 0; }
  bool reporter() const { return first_local() && context_.first_replica == 0; }
  void Enter(Phase phase) {
    if (first_local()) context_.membership->SetPhase(phase, state_.steps + 1);
  }
  // Returns the epoch of the last step.
  int64_t last_epoch() const {
    return std::max<int64_t>(0, state_.position.epoch - (state_.epoch_begins() ? 1 : 0));
  }
  void TakeOverState();
  absl::Status Stopped() const;
  void OpenData();
  // Ends training if the program's run() returned before the end of the job.
  void EndRun();
  void CheckBatchNorm(const BatchNormWatch& watch);
  void Commit(const StepResult& result);
  void Account(const StepResult& result);
  void Measure(const StepResult& result);  // Feeds the meter.
  void MoveOn();                           // Advances the position in the data after a step.
  bool TestDue() const;
  void EndEpoch();
  void ResetEpoch();
  void CheckReplicasEqual();
  // Saves the state if the checkpoint sink wants it. Called by all replicas. `again` is false if
  // this process has already saved the state of this step. The state is then saved only if the sink
  // wanted it before and has not received it. `best` is true if the epoch's training metrics are
  // known and select the best checkpoint.
  void Save(bool again = true, bool best = false);
  // Makes the validation and test passes that are due, unless a stop is requested.
  void RunDuePasses();
  // Makes one pass and returns its metrics. Returns nullopt if a stop was requested.
  std::optional<std::map<std::string, double>> Pass(Split split);
  bool IsFinished() const;  // Returns true if training has no step left.
  bool Has(Split split) const { return context_.datasets.contains(split); }

  // ---- Callbacks (loop_callbacks.cc)
  bool HasCallbacks() const;
  checkpoint::CallbackRecord& record() { return *state_.extras.callbacks; }
  const checkpoint::CallbackRecord& record() const { return *state_.extras.callbacks; }
  // Returns true if a callback has requested a stop. Training then ends after the current step.
  bool Stopping() const {
    return HasCallbacks() && state_.extras.callbacks && !record().stop.empty();
  }
  bool EpochEndPending() const;
  // Prepares the callbacks' record, rates and weights that came with the owner's state.
  void TakeOverCallbacks();
  void ApplyRates();
  void BeginCallbacks();
  void Fire(Hook hook, Split split = Split::kTrain, std::map<std::string, double> metrics = {});
  // Sends the requests of the hooks from rank 0 to all replicas, which apply them.
  void ExchangeDecisions();
  void BeforeStep();
  void AfterStep();
  // Updates the moving average of the weights, without communication.
  void AverageWeights();
  // Returns true if the hooks and the passes at the end of training are complete.
  bool EndIsComplete() const {
    return HasCallbacks() && record().ended && !state_.validation_due && !state_.test_due;
  }
  // Calls the hooks that are due between two steps: those for the end of an epoch and for the end
  // of training.
  void Settle();
  void SaveEnd();
  // Returns the training metrics of the epoch, its validation metrics as "val_<name>", and the
  // learning rate.
  std::map<std::string, double> EpochMetrics() const;
  // Repeats a pass with the moving average of the weights. Adds the resulting metrics as
  // "ema_<name>". Returns false if the pass was stopped.
  bool PassOfAverage(PassOptions options, std::map<std::string, double>* metrics);

  // Returns the means of the metrics over the epoch's steps so far.
  std::map<std::string, double> TrainMetrics() const;
  // Returns the report on the loss scale, or nullopt without float16. `skipped` is true if the last
  // step was skipped.
  std::optional<LossScaleReport> LossScale(bool skipped) const;
  void ReportLeftOut(Split split, const DamagedExamples::Report& left_out);
  void ReportStart();
  void ReportStep(const StepResult& result);
  void ReportEpoch(Split split, int64_t epoch, int64_t examples, double seconds,
                   const std::map<std::string, double>& metrics);
  void ReportSummary(Split split, const SummaryData& summary);
  void ReportParameters();
  void ReportTables();

  const LoopContext context_;
  Replica* const replica_;
  collective::Communicator* const communicator_;
  const int local_index_;
  const int global_replica_;
  const TrainData& data_;
  LoopState& state_;
  StepRunner runner_;
  const int64_t steps_per_epoch_;  // 0 if unknown.
  std::unique_ptr<Feed> feed_;
  std::vector<std::unique_ptr<NamedFeed>> named_feeds_;  // Indexed by handle.
  FedBatch loaded_;
  DamagedExamples::Report left_out_;  // Examples dropped since the last step.
  bool have_batch_ = false;
  // The number of steps to make over the current batch, and the number already made.
  int64_t batch_steps_ = 0, batch_steps_done_ = 0;
  bool begun_batch_ = false;  // True after a step over the batch.
  // True after the first step, in which CheckBatchNorm checks batch normalization.
  bool watched_ = false;
  bool stop_ = false;
  bool fitting_ = false;                // True in Fit(), which makes passes at the ends of epochs.
  std::unique_ptr<CallbackHost> host_;  // Null in replicas that do not run hooks.
  bool save_requested_ = false;         // True if a callback has requested a save.
  bool end_saved_ = false;              // True if SaveEnd has saved in this generation.
  double input_seconds_ = 0;  // Time that this replica waited for input since the last step.
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
