// What a program's Loop does on a worker of a parameter-server job: batches are the leases that the
// chief gives, a step ends with the worker's own push, and parts of validation and test passes are
// made in between, whenever the chief asks. For the replica's thread.
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
#include "common/train/leased_loop.h"
#include "common/train/membership.h"
#include "common/train/parameter_exchange.h"
#include "common/train/single_example.h"
#include "worker/lease_client.h"

namespace muster {

struct PsLoopContext {
  const Job& job;
  Replica* replica;
  ParameterExchange* exchange;
  LeaseClient* leases;
  Membership* membership;
  int worker = 0;
  int workers = 1;       // declared
  bool bounded = false;  // max_staleness
  int64_t train_examples = 0;
  // Once the chief has told the run's global batch: makes schedules for it. The examples of a
  // lease.
  std::function<absl::StatusOr<int64_t>(int64_t global_batch)> begin;
  // After a push or pull failed: whether what was under way is void, and all is ready to go on.
  std::function<bool()> recover;
  std::atomic<int64_t>* steps;     // the step under way, less one
  std::atomic<bool>* has_trained;  // becomes true with the first step that is through
};

// What LeaseClientOptions::load makes: a batch, and the rows that it will want, if any are on their
// way: none while it may not start yet, for they would be too old.
absl::StatusOr<std::shared_ptr<void>> LoadLease(const std::map<Split, data::DatasetPtr>& datasets,
                                                const data::PipelineOptions& options,
                                                const proto::Lease& lease, Replica* replica,
                                                ParameterExchange* exchange);

class PsLoop final : public LeasedLoop {
 public:
  explicit PsLoop(const PsLoopContext& context);
  ~PsLoop() { context_.exchange->set_on_wait(nullptr); }

  // The program's run().
  absl::Status Run();

  void Fit() override;
  bool Next(data::Batch* batch, int64_t steps) override;
  StepOutcome RunStep(const LoopBody& body) override;
  Nested Call(const std::function<Nested()>& function) override;
  // A worker is alone with its batch, as Step says too.
  ReplicaContext context() const override { return {0, 1, context_.replica->device()}; }
  int64_t steps_left() const override { return have_batch_ ? 1 : 0; }
  int64_t steps() const override { return lease_.steps(); }
  int64_t epoch() const override { return lease_.training().epoch(); }
  bool epoch_begins() const override { return lease_.id() == 0; }

 private:
  void Enter(Phase phase) { Report(phase_ = phase); }
  void Report(Phase phase) { context_.membership->SetPhase(phase, lease_.steps() + 1); }
  void Begin();
  // False: the lease is void.
  bool Pull();
  void EvaluateLease();
  // After the first step, so that it does not end at an epoch's end.
  void SetRates();
  void CheckBatchNorm(const BatchNormWatch& watch) const;
  proto::BatchDone DoneOf(const StepResult& result);
  void TellIntegers();
  proto::Shown MessageOf(const SummaryData& shown);

  const PsLoopContext context_;
  Phase phase_ = Phase::kStarting;  // what is under way, also while servers are waited for
  const std::unique_ptr<Communicator> alone_;
  int64_t batch_size_ = 0;              // what context_.begin told, before the first lease 0
  std::unique_ptr<StepRunner> runner_;  // since then
  proto::Lease lease_;                  // the last one that was taken
  data::Batch batch_;
  int64_t examples_ = 0;  // in the batch: fewer than leased where damaged ones are left out
  DamagedExamples damaged_{"leased", nullptr, at::kCPU};
  DamagedExamples::Report left_out_;      // of the batch
  std::shared_ptr<PrefetchedRows> rows_;  // of the batch
  bool have_batch_ = false;
  bool done_ = false;     // the chief said that there is no work any more
  bool fresh_ = true;     // what is in the parameters is no server's
  bool checked_ = false;  // the first step: it registered nothing, and has statistics
  double input_seconds_ = 0, wait_seconds_ = 0;  // the latter: for slower workers, and a pull
  std::set<std::string> said_left_out_;          // tags
  // The job's, of optimizers whose rate a callback has set.
  std::map<std::string, std::unique_ptr<Schedule>> own_schedules_;
  IntegerBuffers integers_;           // as the chief is told
  checkpoint::SkippedSteps skipped_;  // of this worker's steps
};

}  // namespace muster
