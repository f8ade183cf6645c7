// The training loop of a worker in a parameter-server job. Implements the calls of the program's
// muster::Loop. Each batch is a lease of examples from the chief to this worker. In each step,
// the worker pushes its gradients to the parameter servers and receives new parameters. Between
// steps, the loop evaluates the parts of validation and test passes that the chief leases to it.
// Used on the thread of the worker's one replica (copy of the model).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/checkpoint/state/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/train/exchange/parameter_exchange.h"
#include "common/train/input/damaged_examples.h"
#include "common/train/loop/leased_loop.h"
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
  int worker = 0;              // The index of this worker.
  int workers = 1;             // The number of workers in the cluster spec.
  bool bounded = false;        // True if the job sets parameter_server.max_staleness.
  int64_t train_examples = 0;  // The number of examples of the training dataset.
  // Called with the run's global batch size, which the first lease contains. Makes the
  // learning-rate schedules for that size. Returns the number of examples in a training lease.
  std::function<absl::StatusOr<int64_t>(int64_t global_batch)> begin;
  // Called after a failed push or pull. If `recover` returns true, the loop discards its current
  // work and continues. If not, the loop ends with the error of the push or pull.
  std::function<bool()> recover;
  // The loop stores here how many steps of all workers were completed before the current lease.
  std::atomic<int64_t>* steps;
  std::atomic<bool>* has_trained;  // The loop sets this to true after its first step.
  TaskMeter* meter = nullptr;      // Null: nothing is measured.
};

// Loads the examples of a lease, for LeaseClientOptions::load. If a training lease may start at
// once, also starts to pull the rows of embedding tables that the batch looks up. If the lease must
// wait for slower workers, does not pull the rows: they would be too old when the lease starts.
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
  // Returns a context with a single replica, because a worker computes its batch alone.
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
  // Applies the learning rates that callbacks on the chief have set. The lease contains these
  // rates. Called by RunStep. Not called by Next, because Next may take the first lease of the next
  // epoch while the program still finishes the current epoch with the current rates.
  void SetRates();
  void CheckBatchNorm(const BatchNormWatch& watch) const;
  void Measure(const StepResult& result);  // Feeds the meter.
  proto::BatchDone DoneOf(const StepResult& result);
  void ReportIntegers();
  proto::Shown MessageOf(const SummaryData& shown);

  const PsLoopContext context_;
  // The phase (common/base/phase.h) of this loop. While a server is missing, the loop reports
  // kReduce instead, but does not change this field.
  Phase phase_ = Phase::kStarting;
  const std::unique_ptr<collective::Communicator> alone_;
  int64_t batch_size_ = 0;              // The result of context_.begin. 0 before the first lease.
  std::unique_ptr<StepRunner> runner_;  // Set with batch_size_.
  proto::Lease lease_;                  // The newest lease from Take.
  data::Batch batch_;
  int64_t examples_ = 0;  // The number of examples in batch_, without damaged examples.
  DamagedExamples damaged_{"leased", nullptr, at::kCPU};
  DamagedExamples::Report left_out_;      // The damaged examples of the lease.
  std::shared_ptr<PrefetchedRows> rows_;  // The rows for the batch. May be null.
  bool have_batch_ = false;
  bool done_ = false;       // True if the chief has no more work.
  bool needs_pull_ = true;  // True if the next step must wait for a pull of all parameters.
  // True after the first step has passed two checks: no parameter was registered during the step,
  // and no later batch is too small for batch normalization (CheckBatchNorm).
  bool checked_ = false;
  // How long Next has waited for the current batch. wait_seconds_ is the wait for slower workers
  // and for a pull. input_seconds_ is all other waiting time.
  double input_seconds_ = 0, wait_seconds_ = 0;
  // The TensorBoard tags for which the loop has warned that values were omitted.
  std::set<std::string> logged_left_out_;
  // The job's learning-rate schedule of each optimizer whose rate a callback has set, keyed by
  // optimizer. SetRates restores the schedule when the callback no longer sets the rate.
  std::map<std::string, std::unique_ptr<Schedule>> own_schedules_;
  push_pull::IntegerBuffers integers_;       // The integer buffers as last reported to the chief.
  std::set<std::string> changing_integers_;  // The names of the buffers that steps have changed.
  // The steps of this worker that were skipped because of an overflow in float16.
  checkpoint::SkippedSteps skipped_;
};

}  // namespace muster::worker
