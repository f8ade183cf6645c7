// What the workers of a parameter-server job do next: training leases, parts of validation and test
// passes; and what their completion adds up to. Pure bookkeeping over proto::NextRequest and
// NextReply, no I/O; for one thread at a time.
//
// The id of a part, 1 << 62 | split << 56 | step << 20 | part, tells it from a lease of the
// LeaseTable, so that a chief that was restarted knows what a worker speaks of.
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

#include "chief/lease_table.h"
#include "chief/shard_ledger.h"
#include "common/checkpoint/checkpoint.h"
#include "common/train/loss_scale.h"
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
  int64_t step = 0;  // from 1
  int64_t epoch = 0, step_in_epoch = 0;
  bool epoch_end = false, through = false;
  double loss = 0, learning_rate = 0;
  int64_t examples = 0;
  std::map<std::string, double> learning_rates, gradient_norms;  // by optimizer
  std::map<std::string, double> values;
  std::optional<LossScaleReport> loss_scale;  // float16
  proto::Shown shown;
  proto::LeftOut left_out;
  // What its push had that is not finite, by variable, and how many pushes of the run had some.
  std::vector<std::string> not_finite;
  int64_t refused_pushes = 0;
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  int worker = 0;  // whose batch it was
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  // Of the epoch so far, this one included.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::map<std::string, checkpoint::ReportedSum> epoch_values;
};

class WorkTable {
 public:
  struct Options {
    LeaseTable::Options leases;            // batch: a worker's
    std::optional<int64_t> max_staleness;  // at least 1
    int workers = 1;                       // declared
    int shards = 0;                        // of servers
    int64_t summary_every_steps = 0;       // 0: nothing that programs show is wanted
    size_t metric_sums = 0;
  };
  // Where training begins, or goes on.
  WorkTable(const Options& options, const checkpoint::TrainingState& state);
  ~WorkTable();

  // ---- Members
  // This process is worker `worker` from now on. `told`: it may tell what a record does not know.
  void SetWorker(int worker, uint64_t incarnation, bool told);
  void LoseWorker(int worker);
  // What this worker has under way is of a past that the servers do not hold.
  void Void(int worker) {
    workers_[worker].is_void = true;
    ++changes_;
  }
  // Whether this process was ever the worker.
  bool Met(int worker, uint64_t incarnation) const;
  bool Knows(int worker, uint64_t incarnation) const;
  std::map<int, uint64_t> workers() const;

  // ---- Calls of workers that are known
  // What it did. Each lease counts once. InvalidArgument: what cannot be meant.
  absl::Status Take(const proto::NextRequest& request);
  // What it does next; false: nothing yet, and `reply` says why. `shut`: nothing is leased for that
  // reason; "": there is none.
  bool Answer(const proto::NextRequest& request, const std::string& shut, proto::NextReply* reply);
  // What it has under way is void.
  bool Abandoned(int worker) const;
  // Rises with whatever a call that waits may wait for: but for it, Answer says what it said.
  uint64_t changes() const { return changes_; }

  // ---- The director's
  // In the order of completion, those since the last call.
  std::vector<CompletedStep> TakeCompleted();
  bool has_completed() const { return !completed_.empty(); }
  LeaseTable::Gate gate() const { return leases_.gate(); }
  void set_gate(const LeaseTable::Gate& gate) {
    if (gate == leases_.gate()) return;
    leases_.set_gate(gate);
    ++changes_;
  }
  // No lease of training is out: the state is between two steps, and has no holes. A pass changes
  // nothing of it.
  bool between_steps() const;
  std::string WhoIsOut() const;  // "worker 1 and worker 2"
  // With every lease from now on: what callbacks have set, by optimizer.
  void SetRates(std::map<std::string, double> rates) { rates_ = std::move(rates); }
  void SetDone() {
    done_ = true;
    ++changes_;
  }
  // Every worker pulls with its next lease.
  void PullAll();
  // REQUIRES: between_steps(). Without run_id, job, versions and what is due.
  checkpoint::TrainingState state() const;
  int64_t steps() const { return leases_.completed(); }
  bool through() const { return leases_.done(); }
  int64_t repeated_examples() const { return leases_.repeated_examples(); }
  int64_t refused_pushes() const { return refused_pushes_; }
  // Workers that were lost with a lease: its push may be in the servers in part, or whole.
  int64_t torn_pushes() const { return torn_pushes_; }
  // What shards hold of the accepted batches.
  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }
  const std::map<int, StalenessRecord>& staleness() const { return staleness_; }
  int64_t batches_per_epoch() const { return leases_.batches_per_epoch(); }

  // ---- Passes. REQUIRES: between_steps().
  void StartPass(int split, int64_t examples, int64_t batch);
  void CancelPass();
  struct PassResult {
    int64_t done = 0, total = 0;                            // parts
    std::vector<double> sums;                               // loss, examples, metrics
    double loss_divisor = 0;                                // of the losses' sum; 0: there are none
    std::map<std::string, checkpoint::ReportedSum> values;  // that programs reported
    proto::LeftOut left_out;
  };
  std::optional<PassResult> pass() const;
  proto::Shown TakeShownInPass();  // REQUIRES: pass()

  // ---- A restarted chief
  Json ToRecord() const;
  // Then everybody whom SetWorker called `told` is heard before anything is leased; HearThem after
  // all of those. A DataError: the record is of another job.
  static absl::StatusOr<std::unique_ptr<WorkTable>> FromRecord(const Options& options,
                                                               const Json& record);
  void HearThem();
  // Who is waited for there: "worker 1, worker 2"; "": nobody.
  std::string Unheard() const;
  // They are not waited for any more. What they hold is leased again.
  void StopHearing();
  // Some worker has pushed that lease: it was given, and all before it.
  void Reach(int64_t lease) { leases_.Reach(lease); }
  // Rises with what a record has to tell before anything more is leased, for whoever counts after a
  // restart: a worker that is new, leases that came back.
  uint64_t news() const { return news_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool alive = false, told = false, heard = false;
    bool pull = true, pull_for_pass = true;
    bool is_void = false;    // whatever it has under way, which is not known, until it asks
    std::set<int64_t> lost;  // ids of its own that are no more, until it knows
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
  bool from_record_ = false;  // and not all of its workers have been heard yet

  // Of the last step's epoch so far.
  double epoch_loss_sum_ = 0;
  int64_t epoch_examples_ = 0, epoch_steps_ = 0;
  std::vector<double> epoch_metric_sums_;
  std::map<std::string, checkpoint::ReportedSum> epoch_values_;
  bool epoch_over_ = true;      // the next step is another epoch's first
  int64_t skipped_steps_ = 0;   // float16
  int64_t refused_pushes_ = 0;  // in part, for they were not finite
  int64_t torn_pushes_ = 0;
  uint64_t news_ = 0, changes_ = 1;
  std::map<int, StalenessRecord> staleness_;
};

}  // namespace muster
