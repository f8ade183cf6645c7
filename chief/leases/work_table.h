// Decides what the workers of a parameter-server job do next: training leases and parts of
// validation and test passes. Sums up their results. Pure bookkeeping over proto::NextRequest and
// NextReply, no I/O. Used by one thread at a time.
//
// A part's id is 1 << 62 | split << 56 | step << 20 | part. It differs from any lease id of
// LeaseTable, so a restarted chief can tell which one a worker means.
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

namespace muster {

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
  bool epoch_end = false, through = false;
  double loss = 0, learning_rate = 0;
  int64_t examples = 0;
  std::map<std::string, double> learning_rates, gradient_norms;  // Indexed by optimizer.
  std::map<std::string, double> values;
  std::optional<LossScaleReport> loss_scale;  // Only with float16.
  proto::Shown shown;
  proto::LeftOut left_out;
  // The variables for which its push was not finite, and the number of such pushes in the run.
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
    LeaseTable::Options leases;            // `batch` is that of one worker.
    std::optional<int64_t> max_staleness;  // At least 1.
    int workers = 1;                       // Number of declared workers.
    int shards = 0;                        // Number of shards on the servers.
    int64_t summary_every_steps = 0;       // 0: nothing that programs show is wanted.
    size_t metric_sums = 0;
  };
  // `state` is where training begins or resumes.
  WorkTable(const Options& options, const checkpoint::TrainingState& state);
  ~WorkTable();

  // ---- Members
  //
  // Makes this process worker `worker`. `told`: it may report what a record does not know.
  void SetWorker(int worker, uint64_t incarnation, bool told);
  void LoseWorker(int worker);
  // Marks the current work of this worker as void: it belongs to a state that the servers no longer
  // hold.
  void InvalidateWork(int worker) {
    workers_[worker].is_void = true;
    ++changes_;
  }
  // Returns whether this process was ever the worker.
  bool HasSeen(int worker, uint64_t incarnation) const;
  bool Knows(int worker, uint64_t incarnation) const;
  std::map<int, uint64_t> workers() const;

  // ---- Calls of known workers
  //
  // Takes the worker's report. Each lease counts once. Returns InvalidArgument for an impossible
  // report.
  absl::Status Take(const proto::NextRequest& request);
  // Fills in what the worker does next. Returns false if there is nothing yet; `reply` then says
  // why. `shut` is a reason to lease nothing, "" if there is none.
  bool Answer(const proto::NextRequest& request, const std::string& shut, proto::NextReply* reply);
  // Returns whether the worker's current work is void.
  bool Abandoned(int worker) const;
  // Rises with every change that a held call may wait for. While it is unchanged, Answer gives the
  // same result.
  uint64_t changes() const { return changes_; }

  // ---- For the director
  //
  // Returns the steps since the last call, in the order of completion.
  std::vector<CompletedStep> TakeCompleted();
  bool has_completed() const { return !completed_.empty(); }
  LeaseTable::Gate gate() const { return leases_.gate(); }
  void set_gate(const LeaseTable::Gate& gate) {
    if (gate == leases_.gate()) return;
    leases_.set_gate(gate);
    ++changes_;
  }
  // No training lease is open, so the state is between two steps and has no holes. A pass does not
  // change it.
  bool between_steps() const;
  std::string OutstandingWorkers() const;  // "worker 1 and worker 2".
  // Sets the learning rates of all later leases, by optimizer. Callbacks set them.
  void SetRates(std::map<std::string, double> rates) { rates_ = std::move(rates); }
  void SetDone() {
    done_ = true;
    ++changes_;
  }
  // Every worker pulls with its next lease.
  void PullAll();
  // Returns the state without run_id, job, versions and due passes. REQUIRES: between_steps().
  checkpoint::TrainingState state() const;
  int64_t steps() const { return leases_.completed(); }
  bool through() const { return leases_.done(); }
  int64_t repeated_examples() const { return leases_.repeated_examples(); }
  int64_t refused_pushes() const { return refused_pushes_; }
  // Counts losses of workers with a lease. The servers may have applied its push in part or in
  // whole.
  int64_t torn_pushes() const { return torn_pushes_; }
  // The counts of accepted batches that each shard holds.
  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }
  const std::map<int, StalenessRecord>& staleness() const { return staleness_; }
  int64_t batches_per_epoch() const { return leases_.batches_per_epoch(); }

  // ---- Passes. REQUIRES: between_steps().
  void StartPass(int split, int64_t examples, int64_t batch);
  void CancelPass();
  struct PassResult {
    int64_t done = 0, total = 0;  // Numbers of parts.
    std::vector<double> sums;     // Loss, examples, metrics.
    double loss_divisor = 0;      // Divisor of the sum of losses; 0: no losses.
    std::map<std::string, checkpoint::ReportedSum> values;  // Reported by programs.
    proto::LeftOut left_out;
  };
  std::optional<PassResult> pass() const;
  proto::Shown TakeShownInPass();  // REQUIRES: pass().

  // ---- For a restarted chief
  Json ToRecord() const;
  // Restores a table. Nothing is leased until every worker for which SetWorker got `told` has
  // reported. FinishRecovery is called after all SetWorker calls. Returns a DataError if the record
  // is of another job.
  static absl::StatusOr<std::unique_ptr<WorkTable>> FromRecord(const Options& options,
                                                               const Json& record);
  void FinishRecovery();
  // Returns the workers that have not reported yet, "worker 1, worker 2", or "".
  std::string WorkersNotReported() const;
  // Stops waiting for their reports. Their leases are given again.
  void AbandonRecovery();
  // Some worker has pushed that lease, so it and all leases before it were given.
  void Reach(int64_t lease) { leases_.Reach(lease); }
  // Rises with each change that the record must contain before anything more is leased, such as a
  // new worker or returned leases. A restarted chief needs these changes for its counts.
  uint64_t news() const { return news_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool alive = false, told = false, heard = false;
    bool pull = true, pull_for_pass = true;
    bool is_void = false;    // Its current work, which is not known, is void until it asks.
    std::set<int64_t> lost;  // Ids of its lost leases, until it knows of them.
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
  bool from_record_ = false;  // And some of its workers have not reported yet.

  // Sums of the last step's epoch so far.
  double epoch_loss_sum_ = 0;
  int64_t epoch_examples_ = 0, epoch_steps_ = 0;
  std::vector<double> epoch_metric_sums_;
  std::map<std::string, checkpoint::ReportedSum> epoch_values_;
  bool epoch_over_ = true;      // The next step is the first of another epoch.
  int64_t skipped_steps_ = 0;   // Only with float16.
  int64_t refused_pushes_ = 0;  // Pushes refused in part, because values were not finite.
  int64_t torn_pushes_ = 0;
  uint64_t news_ = 0, changes_ = 1;
  std::map<int, StalenessRecord> staleness_;
};

}  // namespace muster
