// The training loop of a worker in a parameter-server job. It implements the program's Loop. Each
// batch is a lease of the chief, and each step ends with a push of this worker's gradients. Between
// steps the loop evaluates parts of the validation or test split if the chief leases them. Used on
// the replica's thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/train/damaged_examples.h"
#include "common/train/embedding/parameter_exchange.h"
#include "common/train/leased_loop.h"
#include "common/train/membership.h"
#include "common/train/step/single_example.h"
#include "worker/parameter_server/lease_client.h"

namespace muster {
class TaskMeter;
}

namespace muster::worker {

struct PsLoopContext {
  const Job& job;
  Replica* replica;
  ParameterExchange* exchange;
  LeaseClient* leases;
  Membership* membership;
  int worker = 0;
  int workers = 1;       // Number of declared workers.
  bool bounded = false;  // The job sets max_staleness.
  int64_t train_examples = 0;
  // Called when the chief has sent the run's global batch size. Makes the learning-rate schedules
  // for that batch size. Returns the number of examples in a lease.
  std::function<absl::StatusOr<int64_t>(int64_t global_batch)> begin;
  // Called after a failed push or pull. If it returns true, the loop discards its current work and
  // continues. If it returns false, the loop ends with the error of the push or pull.
  std::function<bool()> recover;
  // Set to the number of steps that were completed before the current one.
  std::atomic<int64_t>* steps;
  std::atomic<bool>* has_trained;  // Set to true after the first step.
  TaskMeter* meter = nullptr;      // Null: nothing is measured.
};

// Loads the examples of a lease, for LeaseClientOptions::load. If the lease may start now, also
// starts to pull the rows of embedding tables that the batch needs. If the lease must wait, rows
// that are pulled now would be too old when it starts.
absl::StatusOr<std::shared_ptr<void>> LoadLease(const std::map<Split, data::DatasetPtr>& datasets,
                                                const data::PipelineOptions& options,
                                                const proto::Lease& lease, Replica* replica,
                                                ParameterExchange* exchange);

class PsLoop final : public LeasedLoop {
 public:
  explicit PsLoop(const PsLoopContext& context);
  ~PsLoop() { context_.exchange->set_on_wait(nullptr); }

  // Calls the program's run().
  absl::Status Run();

  void Fit() override;
  bool Next(data::Batch* batch, int64_t steps) override;
  StepOutcome RunStep(const LoopBody& body) override;
  Nested Call(const std::function<Nested()>& function) override;
  // Returns the context of a single replica, because a worker computes its batch alone.
  ReplicaContext context() const override { return {0, 1, context_.replica->device()}; }
  int64_t steps_left() const override { return have_batch_ ? 1 : 0; }
  int64_t steps() const override { return lease_.steps(); }
  int64_t epoch() const override { return lease_.training().epoch(); }
  bool epoch_begins() const override { return lease_.id() == 0; }

 private:
  void Enter(Phase phase) { Report(phase_ = phase); }
  void Report(Phase phase) { context_.membership->SetPhase(phase, lease_.steps() + 1); }
  void Begin();
  // Pulls all parameters. Returns false if the loop must discard its lease.
  bool Pull();
  void EvaluateLease();
  // Applies the lease's learning rates, which callbacks on the chief have set. Called by RunStep,
  // not by Next, so that a rate for the next epoch does not take effect at the end of this one.
  void SetRates();
  void CheckBatchNorm(const BatchNormWatch& watch) const;
  void Measure(const StepResult& result);  // Feeds the meter.
  proto::BatchDone DoneOf(const StepResult& result);
  void ReportIntegers();
  proto::Shown MessageOf(const SummaryData& shown);

  const PsLoopContext context_;
  // The loop's own phase. While a server is missing, kReduce is reported instead, and this field
  // keeps its value.
  Phase phase_ = Phase::kStarting;
  const std::unique_ptr<collective::Communicator> alone_;
  int64_t batch_size_ = 0;              // The result of context_.begin; 0 before the first lease.
  std::unique_ptr<StepRunner> runner_;  // Set with batch_size_.
  proto::Lease lease_;                  // The last lease.
  data::Batch batch_;
  int64_t examples_ = 0;  // The examples in the batch, without the damaged ones.
  DamagedExamples damaged_{"leased", nullptr, at::kCPU};
  DamagedExamples::Report left_out_;      // The damaged examples of the lease.
  std::shared_ptr<PrefetchedRows> rows_;  // The rows for the batch. May be null.
  bool have_batch_ = false;
  bool done_ = false;       // The chief has no more work.
  bool needs_pull_ = true;  // The loop must pull all parameters before the next step.
  // True once the first step was checked: no parameter was registered late, and no later batch is
  // too small for batch normalization (CheckBatchNorm).
  bool checked_ = false;
  // wait_seconds_ is the time spent waiting for slower workers and for a pull.
  double input_seconds_ = 0, wait_seconds_ = 0;
  // The summary tags for which a warning about omitted values was logged.
  std::set<std::string> logged_left_out_;
  // For each optimizer whose learning rate a callback has set: its schedule from the job, which
  // returns when the callback no longer sets the rate.
  std::map<std::string, std::unique_ptr<Schedule>> own_schedules_;
  push_pull::IntegerBuffers integers_;  // The integer buffers with the values that the chief has.
  std::set<std::string> changing_integers_;  // The names of buffers that any step has changed.
  checkpoint::SkippedSteps skipped_;         // The skipped steps of this worker.
};

}  // namespace muster::worker
