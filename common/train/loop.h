// One replica's way through one generation: data, steps, epochs, validation and test passes, and
// when the state is saved. Every replica runs the same code in its own thread and takes the same
// decisions, because it takes them on reduced numbers.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/pipeline.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/checkpointing.h"
#include "common/train/evaluation.h"
#include "common/train/local_exchange.h"
#include "common/train/loop_backend.h"
#include "common/train/loop_data.h"
#include "common/train/loop_state.h"
#include "common/train/membership.h"
#include "common/train/replica.h"
#include "common/train/replica_buffers.h"
#include "common/train/single_example.h"
#include "common/train/snapshot.h"
#include "common/train/step.h"

namespace muster {

// What all replicas of the process share during a generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  const std::vector<data::DatasetPtr>& named_datasets;  // by handle
  Membership* membership;
  const std::vector<Observer*>& observers;
  CheckpointSink* checkpoints;  // null: nothing is saved
  SnapshotTaker* snapshots;
  StackedBuffers* kept;  // of the last save or restore: what rank 0 gives to replicas without any
  LocalExchange* exchange;
  int num_replicas;   // of the generation
  int first_replica;  // this process's first one in the generation
  int owner_replica;  // whose state is broadcast
  int world_size;
  int local_replicas = 1;    // of this process
  bool for_servers = false;  // StepRunnerOptions'
  SharedPipelines* pipelines = nullptr;
  int replicas_on_host = 1;         // of all members
  DamageLog* damage_log = nullptr;  // of the run
  int declared_replicas = 0;        // of the whole cluster; the same in all members
};

// What a job that must save and cannot ends with: retryable.
absl::Status CouldNotSave(int64_t step, const absl::Status& why);

class LoopImpl final : public LoopBackend {
 public:
  // `state` has its batch size, and is this replica's alone; it is current after each committed
  // step and each pass, so that a later generation goes on from it.
  LoopImpl(const LoopContext& context, Replica* replica, Communicator* communicator,
           int local_index, const TrainData& data, LoopState* state);
  ~LoopImpl() override;

  // Broadcasts the newest state, then runs the program's own run(), whose return is the end of
  // training. Preempted after an agreed stop.
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
  // The epoch that the last step belonged to.
  int64_t last_epoch() const {
    return std::max<int64_t>(0, state_.position.epoch - (state_.epoch_begins() ? 1 : 0));
  }
  void TakeOverState();
  absl::Status Stopped() const;
  void OpenData();
  // run() has returned, with nothing wrong.
  void EndRun();
  void CheckBatchNorm(const BatchNormWatch& watch);
  void Commit(const StepResult& result);
  void Account(const StepResult& result);
  void MoveOn();  // in the data
  bool TestDue() const;
  void EndEpoch();
  void ResetEpoch();
  void CheckReplicasEqual();
  // Hands the state to the sink if it wants it; not `again` where this process knows that it has
  // done so before, but for a save that did not come to its end. By all replicas.
  // `best`: the epoch's own metrics are known, by which this may be the best step.
  void Save(bool again = true, bool best = false);
  // Makes the passes that are due, in order, as far as no stop comes.
  void RunDuePasses();
  // nullopt: a stop was asked for.
  std::optional<std::map<std::string, double>> Pass(Split split);
  bool Through() const;  // no step is left to do
  bool Has(Split split) const { return context_.datasets.contains(split); }

  // ---- Callbacks (loop_callbacks.cc)
  bool HasCallbacks() const;
  checkpoint::CallbackRecord& record() { return *state_.extras.callbacks; }
  const checkpoint::CallbackRecord& record() const { return *state_.extras.callbacks; }
  // One of them asked for the end, after which training is finished.
  bool Stopping() const {
    return HasCallbacks() && state_.extras.callbacks && !record().stop.empty();
  }
  bool EpochEndPending() const;
  // Of the state that was taken over.
  void TakeOverCallbacks();
  void ApplyRates();
  void BeginCallbacks();
  void Fire(Hook hook, Split split = Split::kTrain, std::map<std::string, double> metrics = {});
  // Tells all replicas what hooks asked for, which counts from then on.
  void ExchangeDecisions();
  void BeforeStep();
  void AfterStep();
  // The moving average, which needs nobody else.
  void AverageWeights();
  // Training has had its end, and nothing that belongs to it is left to do.
  bool EndIsComplete() const {
    return HasCallbacks() && record().ended && !state_.validation_due && !state_.test_due;
  }
  // Calls the hooks that are due between two steps: of an epoch's end and of training's.
  void Settle();
  void SaveEnd();
  // The validation's too, by their names there.
  std::map<std::string, double> EpochMetrics() const;
  // "ema_<name>": the pass with the moving average of the weights; false: it was given up.
  bool PassOfAverage(PassOptions options, std::map<std::string, double>* metrics);

  // Of the epoch's steps so far.
  std::map<std::string, double> TrainMetrics() const;
  // Of a run in float16. `skipped`: the last step was.
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
  const int64_t steps_per_epoch_;  // 0: not known
  std::unique_ptr<Feed> feed_;
  std::vector<std::unique_ptr<NamedFeed>> named_feeds_;  // by handle
  FedBatch loaded_;
  DamagedExamples::Report left_out_;  // since the last step
  bool have_batch_ = false;
  int64_t batch_steps_ = 0, batch_steps_done_ = 0;  // over it
  bool begun_batch_ = false;                        // by this object
  bool watched_ = false;                            // the first step's batch normalisations
  bool stop_ = false;
  bool fitting_ = false;                // the built-in loop: passes belong to the ends of epochs
  std::unique_ptr<CallbackHost> host_;  // where hooks run
  bool save_requested_ = false;         // by a callback
  bool end_saved_ = false;              // SaveEnd was here, in this generation
  double input_seconds_ = 0;            // since the last step
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
