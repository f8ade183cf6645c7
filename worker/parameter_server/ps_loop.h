// The Loop of a program on a worker of a parameter-server job. Its batches are the chief's leases,
// and a step ends with the worker's own push. Parts of validation and test passes run in between
// when the chief asks for them. Used on the replica's thread.
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

struct PsLoopContext {
  const Job& job;
  Replica* replica;
  ParameterExchange* exchange;
  LeaseClient* leases;
  Membership* membership;
  int worker = 0;
  int workers = 1;       // Number of declared workers.
  bool bounded = false;  // max_staleness is set.
  int64_t train_examples = 0;
  // Called once the chief has sent the run's global batch. Makes the schedules for it and returns
  // the examples of a lease.
  std::function<absl::StatusOr<int64_t>(int64_t global_batch)> begin;
  // Called after a failed push or pull. Returns true if the current work is void and everything is
  // ready to continue.
  std::function<bool()> recover;
  std::atomic<int64_t>* steps;     // The current step minus 1.
  std::atomic<bool>* has_trained;  // Set by the first completed step.
};

// For LeaseClientOptions::load. Returns a batch and the rows that it needs, if any are being
// fetched. A lease that may not start yet has none, because they would be too old.
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
  // A worker is alone with its batch, as in Step.
  ReplicaContext context() const override { return {0, 1, context_.replica->device()}; }
  int64_t steps_left() const override { return have_batch_ ? 1 : 0; }
  int64_t steps() const override { return lease_.steps(); }
  int64_t epoch() const override { return lease_.training().epoch(); }
  bool epoch_begins() const override { return lease_.id() == 0; }

 private:
  void Enter(Phase phase) { Report(phase_ = phase); }
  void Report(Phase phase) { context_.membership->SetPhase(phase, lease_.steps() + 1); }
  void Begin();
  // Returns false if the lease is void.
  bool Pull();
  void EvaluateLease();
  // Called after the first step, so that it does not take effect at the end of an epoch.
  void SetRates();
  void CheckBatchNorm(const BatchNormWatch& watch) const;
  proto::BatchDone DoneOf(const StepResult& result);
  void TellIntegers();
  proto::Shown MessageOf(const SummaryData& shown);

  const PsLoopContext context_;
  Phase phase_ = Phase::kStarting;  // The current phase, also while it waits for servers.
  const std::unique_ptr<Communicator> alone_;
  int64_t batch_size_ = 0;              // The result of context_.begin; 0 before the first lease.
  std::unique_ptr<StepRunner> runner_;  // Set with batch_size_.
  proto::Lease lease_;                  // The last one that was taken.
  data::Batch batch_;
  int64_t examples_ = 0;  // Examples in the batch; fewer than leased if damaged ones are left out.
  DamagedExamples damaged_{"leased", nullptr, at::kCPU};
  DamagedExamples::Report left_out_;      // The damaged examples of the batch.
  std::shared_ptr<PrefetchedRows> rows_;  // The rows for the batch.
  bool have_batch_ = false;
  bool done_ = false;  // The chief has no more work.
  bool fresh_ = true;  // The parameters are not from a server.
  // The first step was checked for late registrations and for batch norm statistics.
  bool checked_ = false;
  double input_seconds_ = 0, wait_seconds_ = 0;  // wait_seconds_: for slower workers and a pull.
  std::set<std::string> said_left_out_;          // Tags that were already logged.
  // Schedules of the job for optimizers whose learning rate a callback has set.
  std::map<std::string, std::unique_ptr<Schedule>> own_schedules_;
  IntegerBuffers integers_;                  // The buffers as reported to the chief.
  std::set<std::string> changing_integers_;  // Names of those that any step has changed.
  checkpoint::SkippedSteps skipped_;         // The skipped steps of this worker.
};

}  // namespace muster
