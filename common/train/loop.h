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

// The state that all replicas of the process share during a generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  const std::vector<data::DatasetPtr>& named_datasets;  // Indexed by handle.
  Membership* membership;
  const std::vector<Observer*>& observers;
  CheckpointSink* checkpoints;  // Null: nothing is saved.
  SnapshotTaker* snapshots;
  // The buffers of the last save or restore. Rank 0 gives them to replicas that have none.
  StackedBuffers* kept;
  LocalExchange* exchange;
  int num_replicas;   // Replicas of the generation.
  int first_replica;  // Index of this process's first replica in the generation.
  int owner_replica;  // The replica whose state is broadcast.
  int world_size;
  int local_replicas = 1;    // Replicas of this process.
  bool for_servers = false;  // See StepRunnerOptions.
  SharedPipelines* pipelines = nullptr;
  int replicas_on_host = 1;         // Replicas of all members on this host.
  DamageLog* damage_log = nullptr;  // Lasts for the whole run.
  int declared_replicas = 0;        // Replicas of the whole cluster. Equal in all members.
};

// Returns the retryable error for a job that has to save its state after `step` and cannot.
absl::Status CouldNotSave(int64_t step, const absl::Status& why);

class LoopImpl final : public LoopBackend {
 public:
  // `state` belongs to this replica alone and has its batch size. This object updates it after each
  // committed step and each pass, so that a later generation can continue from it.
  LoopImpl(const LoopContext& context, Replica* replica, Communicator* communicator,
           int local_index, const TrainData& data, LoopState* state);
  ~LoopImpl() override;

  // Broadcasts the newest state, then calls the program's run(). Training ends when run() returns.
  // Returns Preempted after an agreed stop.
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
  // The epoch of the last step.
  int64_t last_epoch() const {
    return std::max<int64_t>(0, state_.position.epoch - (state_.epoch_begins() ? 1 : 0));
  }
  void TakeOverState();
  absl::Status Stopped() const;
  void OpenData();
  // Called when run() has returned without an error.
  void EndRun();
  void CheckBatchNorm(const BatchNormWatch& watch);
  void Commit(const StepResult& result);
  void Account(const StepResult& result);
  void MoveOn();  // Advances the position in the data.
  bool TestDue() const;
  void EndEpoch();
  void ResetEpoch();
  void CheckReplicasEqual();
  // Hands the state to the sink if the sink wants it. Called by all replicas. `again` is false if
  // this process has already saved the step. It then saves only if the sink wanted this step's
  // state and has not received it. `best` is true if the epoch's training metrics select the best
  // step.
  void Save(bool again = true, bool best = false);
  // Makes the passes that are due, in order, until a stop is requested.
  void RunDuePasses();
  // Returns nullopt if a stop was requested.
  std::optional<std::map<std::string, double>> Pass(Split split);
  bool IsFinished() const;  // No step is left to do.
  bool Has(Split split) const { return context_.datasets.contains(split); }

  // ---- Callbacks (loop_callbacks.cc)
  bool HasCallbacks() const;
  checkpoint::CallbackRecord& record() { return *state_.extras.callbacks; }
  const checkpoint::CallbackRecord& record() const { return *state_.extras.callbacks; }
  // True if a callback has asked to stop, so that training is finished after this step.
  bool Stopping() const {
    return HasCallbacks() && state_.extras.callbacks && !record().stop.empty();
  }
  bool EpochEndPending() const;
  // Takes the callbacks' record from the received state.
  void TakeOverCallbacks();
  void ApplyRates();
  void BeginCallbacks();
  void Fire(Hook hook, Split split = Split::kTrain, std::map<std::string, double> metrics = {});
  // Sends the hooks' decision to all replicas, where it takes effect.
  void ExchangeDecisions();
  void BeforeStep();
  void AfterStep();
  // Updates the moving average. Needs no communication.
  void AverageWeights();
  // True if the end of training, with its hooks and its passes, is complete.
  bool EndIsComplete() const {
    return HasCallbacks() && record().ended && !state_.validation_due && !state_.test_due;
  }
  // Calls the hooks that are due between two steps: those of the end of an epoch and of training.
  void Settle();
  void SaveEnd();
  // Includes the validation metrics, as "val_<name>".
  std::map<std::string, double> EpochMetrics() const;
  // Repeats the pass with the moving average of the weights, and adds its metrics as "ema_<name>".
  // Returns false if the pass was stopped.
  bool PassOfAverage(PassOptions options, std::map<std::string, double>* metrics);

  // Returns the means over the epoch's steps so far.
  std::map<std::string, double> TrainMetrics() const;
  // Returns nullopt unless this is a float16 run. `skipped` is true if the last step was skipped.
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
  Communicator* const communicator_;
  const int local_index_;
  const int global_replica_;
  const TrainData& data_;
  LoopState& state_;
  StepRunner runner_;
  const int64_t steps_per_epoch_;  // 0: not known.
  std::unique_ptr<Feed> feed_;
  std::vector<std::unique_ptr<NamedFeed>> named_feeds_;  // Indexed by handle.
  FedBatch loaded_;
  DamagedExamples::Report left_out_;  // Examples dropped since the last step.
  bool have_batch_ = false;
  int64_t batch_steps_ = 0, batch_steps_done_ = 0;  // Steps over the current batch.
  bool begun_batch_ = false;                        // This object has made a step over the batch.
  bool watched_ = false;  // The first step was watched for batch normalisation.
  bool stop_ = false;
  bool fitting_ = false;                // In Fit(): passes run at the ends of epochs.
  std::unique_ptr<CallbackHost> host_;  // Null in replicas that run no hooks.
  bool save_requested_ = false;         // A callback has requested a save.
  bool end_saved_ = false;              // SaveEnd has run in this generation.
  double input_seconds_ = 0;            // Time waited for input since the last step.
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
