// WorkTable decides what each worker of a parameter-server job does next: a training lease, or a
// part of a validation or test pass. It sums up the workers' results. The Director owns it. It
// reads proto::NextRequest, fills in proto::NextReply and does no I/O. Used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/evaluation_pass.h"
#include "chief/leases/lease_table.h"
#include "chief/leases/shard_ledger.h"
#include "chief/leases/step_accounts.h"
#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

class WorkTable {
 public:
  struct Options {
    LeaseTable::Options leases;            // `batch` is the batch size of one worker.
    std::optional<int64_t> max_staleness;  // At least 1. nullopt: no bound.
    int workers = 1;                       // Number of declared workers.
    int shards = 0;                        // Number of shards.
    // 0: workers send nothing for summaries.
    int64_t summary_every_steps = 0;
    size_t metric_sums = 0;
  };
  // Training begins or resumes from `state`.
  WorkTable(const Options& options, const checkpoint::TrainingState& state);

  // ---- Members
  //
  // Records that the process with this incarnation is now worker `worker`. `returning` is true if
  // the process worked for an earlier chief, so that it may report work that the record does not
  // have.
  void SetWorker(int worker, uint64_t incarnation, bool returning);
  void LoseWorker(int worker);
  // Marks the worker's current work as void, because the servers no longer hold the state that it
  // was computed from.
  void InvalidateWork(int worker) {
    workers_[worker].work_invalid = true;
    ++changes_;
  }
  // HasSeen returns whether the process with this incarnation is, or was last, worker `worker`.
  // Knows returns whether it is that worker now.
  bool HasSeen(int worker, uint64_t incarnation) const;
  bool Knows(int worker, uint64_t incarnation) const;
  std::map<int, uint64_t> workers() const;

  // ---- Calls of known workers
  //
  // Takes the worker's report. Each lease counts once. Returns an error for an impossible report,
  // or for one of another program.
  absl::Status Take(const proto::NextRequest& request);
  // Fills in what the worker does next. Returns false if there is no work yet; `reply` then has the
  // reason. `shut` is a reason to lease nothing, "" if there is none.
  bool Answer(const proto::NextRequest& request, const std::string& shut, proto::NextReply* reply);
  // Returns whether the worker's current work is void.
  bool Abandoned(int worker) const;
  // Increases with every change after which Answer may have work for a call that waits. Answer
  // gives the same result until this value changes.
  uint64_t changes() const { return changes_; }

  // ---- For the director
  //
  // Returns the steps completed since the last call, in the order of completion.
  std::vector<CompletedStep> TakeCompleted();
  bool has_completed() const { return !completed_.empty(); }
  LeaseTable::Gate gate() const { return leases_.gate(); }
  void set_gate(const LeaseTable::Gate& gate) {
    if (gate == leases_.gate()) return;
    leases_.set_gate(gate);
    ++changes_;
  }
  // Returns true if no training lease is open. If so, the servers hold the state after a whole
  // number of steps. A running pass does not matter, because it does not change the state.
  bool between_steps() const;
  // Returns the workers with unfinished work, "worker 1, worker 2", or "nobody".
  std::string OutstandingWorkers() const;
  // Sets the learning rates of all later leases, by optimizer. Called if callbacks have decided on
  // rates.
  void SetRates(std::map<std::string, double> rates) { rates_ = std::move(rates); }
  void SetDone() {
    done_ = true;
    ++changes_;
  }
  // Makes every worker pull all parameters with its next lease.
  void PullAll();
  // Returns the training state. Its run_id, job, versions and due passes are not set. REQUIRES:
  // between_steps().
  checkpoint::TrainingState state() const;
  int64_t steps() const { return leases_.completed(); }
  bool all_done() const { return leases_.done(); }
  int64_t repeated_examples() const { return leases_.repeated_examples(); }
  int64_t refused_pushes() const { return steps_.refused_pushes(); }
  // Returns how often a worker with a lease was lost. The servers may have applied the push of this
  // lease in part or in whole.
  int64_t torn_pushes() const { return torn_pushes_; }
  // Returns the counts of updates that each shard holds and has lost.
  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }
  const std::map<int, StalenessRecord>& staleness() const { return steps_.staleness(); }
  int64_t batches_per_epoch() const { return leases_.batches_per_epoch(); }

  // ---- Passes. REQUIRES: between_steps().
  void StartPass(int split, int64_t examples, int64_t batch);
  void CancelPass();
  using PassResult = EvaluationPass::Result;
  std::optional<PassResult> pass() const;
  proto::Shown TakeShownInPass() { return pass_->TakeShown(); }  // REQUIRES: pass() has a value.

  // ---- For a restarted chief
  Json ToRecord() const;
  // Makes the table from an earlier chief's record. The table leases nothing until every worker
  // that SetWorker marked as `returning` has reported. Call FinishRecovery after all SetWorker
  // calls. Returns DataError if the record belongs to another job.
  static absl::StatusOr<std::unique_ptr<WorkTable>> FromRecord(const Options& options,
                                                               const Json& record);
  void FinishRecovery();
  // Returns the workers that have not reported yet, "worker 1, worker 2", or "".
  std::string WorkersNotReported() const;
  // Stops waiting for the workers that have not reported. Their leases are handed out again.
  void AbandonRecovery();
  // Called if a worker has pushed `lease`. This lease and all before it were therefore handed out.
  void Reach(int64_t lease) { leases_.Reach(lease); }
  // Increases with each change (such as a new worker or a returned lease) that must be in the
  // stored record before more is leased. Without these changes, a restarted chief would count
  // wrongly.
  uint64_t revision() const { return revision_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool alive = false, returning = false, reported = false;
    bool pull = true;
    // The worker's current work is void. The worker's next call tells the chief which leases these
    // are.
    bool work_invalid = false;
    // The worker has not reported yet what it did for an earlier chief.
    bool unreported() const { return returning && !reported; }
    std::set<int64_t> lost;  // Ids of its lost leases, until the worker knows that they are lost.
  };

  bool Adopting() const;
  void TakeBatch(int worker, const proto::BatchDone& done);
  void TakeHeld(int worker, int64_t id);
  bool Holds(int worker, int64_t id) const;
  bool AnswerLost(const proto::NextRequest& request, proto::NextReply* reply);
  bool AnswerStart(const proto::NextRequest& request, proto::NextReply* reply);
  bool AnswerPart(const proto::NextRequest& request, proto::NextReply* reply);
  bool AnswerLease(const proto::NextRequest& request, proto::NextReply* reply);
  void Offer(int worker, const Lease& lease, proto::Lease* offer);

  const Options options_;
  LeaseTable leases_;
  ClockTable clocks_;
  ShardLedger ledger_;
  StepAccounts steps_;
  std::map<int, Worker> workers_;
  std::optional<EvaluationPass> pass_;
  std::deque<CompletedStep> completed_;
  bool done_ = false;
  std::map<std::string, double> rates_;
  bool from_record_ = false;  // The table is from a record, and workers may still have to report.
  int64_t torn_pushes_ = 0;
  uint64_t revision_ = 0, changes_ = 1;
};

}  // namespace muster::chief
