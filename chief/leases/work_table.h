// WorkTable decides what each worker of a parameter-server job does next: a training lease, or a
// part of a validation or test pass. It sums up the workers' results. The Director owns it. It
// reads proto::NextRequest, fills in proto::NextReply and does no I/O. Used by one thread at a
// time.
//
// The id of a part is 1 << 62 | split << 56 | step << 20 | part. It differs from every lease id of
// LeaseTable, so a restarted chief can tell parts from leases.
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

#include "chief/leases/lease_table.h"
#include "chief/leases/shard_ledger.h"
#include "common/checkpoint/checkpoint.h"
#include "common/train/replica/loss_scale.h"
#include "muster/json.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

struct StalenessRecord {
  int64_t max = 0, pushes = 0;
  double sum = 0;
  void Add(int64_t highest, double mean) {
    max = std::max(max, highest);
    sum += mean;
    ++pushes;
  }
  double mean() const { return pushes == 0 ? 0 : sum / static_cast<double>(pushes); }
};

// A completed lease.
struct CompletedStep {
  int64_t step = 0;  // Counts from 1.
  int64_t epoch = 0, step_in_epoch = 0;
  bool epoch_end = false, all_done = false;
  double loss = 0, learning_rate = 0;
  int64_t examples = 0;
  std::map<std::string, double> learning_rates, gradient_norms;  // Indexed by optimizer.
  std::map<std::string, double> values;
  std::optional<LossScaleReport> loss_scale;  // Only with float16.
  proto::Shown shown;
  proto::LeftOut left_out;
  // The variables with gradients in this push that were not finite. refused_pushes counts such
  // pushes of the run so far.
  std::vector<std::string> not_finite;
  int64_t refused_pushes = 0;
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  int worker = 0;  // The worker that computed the batch.
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  // Sums of the epoch so far, including this step.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::map<std::string, checkpoint::ReportedSum> epoch_values;
};

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
  ~WorkTable();

  // ---- Members
  //
  // Makes this process worker `worker`. `returning`: the process worked for an earlier chief, so it
  // may report work that the record does not have.
  void SetWorker(int worker, uint64_t incarnation, bool returning);
  void LoseWorker(int worker);
  // Marks the worker's current work as void, because the servers no longer hold the state that it
  // was computed from.
  void InvalidateWork(int worker) {
    workers_[worker].work_invalid = true;
    ++changes_;
  }
  // Returns whether this process is or was the worker.
  bool HasSeen(int worker, uint64_t incarnation) const;
  bool Knows(int worker, uint64_t incarnation) const;
  std::map<int, uint64_t> workers() const;

  // ---- Calls of known workers
  //
  // Takes the worker's report. Each lease counts once. Returns InvalidArgument for an impossible
  // report.
  absl::Status Take(const proto::NextRequest& request);
  // Fills in what the worker does next. Returns false if there is no work yet; `reply` then has the
  // reason. `shut` is a reason to lease nothing, "" if there is none.
  bool Answer(const proto::NextRequest& request, const std::string& shut, proto::NextReply* reply);
  // Returns whether the worker's current work is void.
  bool Abandoned(int worker) const;
  // Increases with every change that a held call may wait for. Answer gives the same result until
  // this value changes.
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
  // Returns true if no training lease is open. The servers' state is then that of a whole number of
  // steps. A running pass does not matter, because it does not change the state.
  bool between_steps() const;
  std::string OutstandingWorkers() const;  // "worker 1 and worker 2".
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
  int64_t refused_pushes() const { return refused_pushes_; }
  // Returns how often a worker with a lease was lost. The servers may have applied the push of this
  // lease in part or in whole.
  int64_t torn_pushes() const { return torn_pushes_; }
  // Returns the counts of updates that each shard holds and has lost.
  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }
  const std::map<int, StalenessRecord>& staleness() const { return staleness_; }
  int64_t batches_per_epoch() const { return leases_.batches_per_epoch(); }

  // ---- Passes. REQUIRES: between_steps().
  void StartPass(int split, int64_t examples, int64_t batch);
  void CancelPass();
  struct PassResult {
    int64_t done = 0, total = 0;  // Numbers of completed parts and of all parts.
    std::vector<double> sums;     // The sums of losses, examples and metrics.
    double loss_divisor = 0;      // Divisor of the sum of losses; 0: no losses.
    std::map<std::string, checkpoint::ReportedSum> values;  // Reported by programs.
    proto::LeftOut left_out;
  };
  std::optional<PassResult> pass() const;
  proto::Shown TakeShownInPass();  // REQUIRES: pass().

  // ---- For a restarted chief
  Json ToRecord() const;
  // Makes the table from an earlier chief's record. It leases nothing until every worker set with
  // `returning` has reported. Call FinishRecovery after all SetWorker calls. Returns DataError if
  // the record belongs to another job.
  static absl::StatusOr<std::unique_ptr<WorkTable>> FromRecord(const Options& options,
                                                               const Json& record);
  void FinishRecovery();
  // Returns the workers that have not reported yet, "worker 1, worker 2", or "".
  std::string WorkersNotReported() const;
  // Stops waiting for the workers that have not reported. Their leases are handed out again.
  void AbandonRecovery();
  // Called if a worker has pushed `lease`, so this lease and all before it were handed out.
  void Reach(int64_t lease) { leases_.Reach(lease); }
  // Increases with each change that a stored record must contain before more is leased, such as a
  // new worker or a returned lease. A restarted chief needs these changes to count correctly.
  uint64_t revision() const { return revision_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool alive = false, returning = false, reported = false;
    bool pull = true, pull_for_pass = true;
    // The worker's current work is void. The chief learns which work that is from the worker's next
    // call.
    bool work_invalid = false;
    std::set<int64_t> lost;  // Ids of its lost leases, until the worker knows that they are lost.
  };
  struct Pass;

  bool Adopting() const;
  void SetState(const checkpoint::TrainingState& state);
  void TakeBatch(int worker, const proto::BatchDone& done);
  void TakeHeld(int worker, int64_t id);
  void TakeEvaluated(const proto::EvaluationDone& done);
  void Account(const Lease& lease, int worker, const proto::BatchDone& done);
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
  std::map<int, Worker> workers_;
  std::unique_ptr<Pass> pass_;
  std::deque<CompletedStep> completed_;
  bool done_ = false;
  std::map<std::string, double> rates_;
  bool from_record_ = false;  // The table is from a record, and workers may still have to report.

  // Sums over the completed steps of the last step's epoch.
  double epoch_loss_sum_ = 0;
  int64_t epoch_examples_ = 0, epoch_steps_ = 0;
  std::vector<double> epoch_metric_sums_;
  std::map<std::string, checkpoint::ReportedSum> epoch_values_;
  bool epoch_over_ = true;      // The next step is the first of another epoch.
  int64_t skipped_steps_ = 0;   // Only with float16.
  int64_t refused_pushes_ = 0;  // Pushes refused in part, because values were not finite.
  int64_t torn_pushes_ = 0;
  uint64_t revision_ = 0, changes_ = 1;
  std::map<int, StalenessRecord> staleness_;
};

}  // namespace muster::chief
