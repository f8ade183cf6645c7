// TrainingLeases is the training side of WorkTable (work_table.h). It leases the batches of a
// parameter-server job to workers (LeaseTable), holds fast workers back (ClockTable), turns
// completed leases into steps (StepAccounts), and counts the updates of each shard (ShardLedger).
// WorkTable owns it, and decides whether a worker may get a lease at all. TrainingLeases does no
// I/O. Used by one thread at a time.
//
// With a staleness bound, a worker holds at most kMaxHeld leases. Without a bound, one call of
// Offer gives a worker with short batches several new leases (NextRequest::want).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/lease_table.h"
#include "chief/leases/shard_ledger.h"
#include "chief/leases/step_accounts.h"
#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

class TrainingLeases {
 public:
  struct Options {
    LeaseTable::Options leases;            // `batch` is the batch size of one worker.
    std::optional<int64_t> max_staleness;  // At least 1. nullopt: no limit. See ClockTable.
    int shards = 0;                        // The number of parts of the variables: one per ps task.
    // Interval in which workers send images and histograms for TensorBoard. 0: they send none.
    int64_t summary_every_steps = 0;
    // The number of sums from which all metrics are computed: the total of Metric::width.
    size_t metric_sums = 0;
  };
  // Training begins or resumes from `state`.
  TrainingLeases(const Options& options, const checkpoint::TrainingState& state);

  // ---- Workers
  //
  // Adds a worker, or a new process of a worker. It pulls all parameters with its next lease.
  void Join(int worker);
  // Takes back the leases of a lost worker, so that other workers can get them. `unreported` is
  // true if the worker may also have computed leases for an earlier chief without reporting them.
  // Returns true if the worker may have started a lease that was taken back.
  bool Lose(int worker, bool unreported);
  // Returns the leases that the worker holds, ordered by id.
  std::vector<Lease> held_by(int worker) const { return leases_.held_by(worker); }
  bool Holds(int worker, int64_t id) const;
  // Adds to `workers` the workers that hold leases. Returns true if there are open leases that no
  // worker holds.
  bool AddOutstanding(std::set<int>* workers) const;
  bool none_open() const { return leases_.held().empty() && !has_returned(); }
  // Returns whether there are open leases that no worker holds.
  bool has_returned() const { return !leases_.returned().empty(); }
  // Makes every worker pull all parameters with its next lease.
  void PullAll() { pull_requested_.clear(); }

  // ---- Calls of workers
  //
  // Adds the result of a lease that `worker` holds. Ignores the result of any other lease.
  // REQUIRES: `done` has as many sums of metrics as Options::metric_sums.
  void Take(int worker, const proto::BatchDone& done);
  // Called when a worker asks whether it may start the lease `request.start()`. Returns "" if the
  // worker may start it. If the worker must wait for a slower worker, returns the reason. REQUIRES:
  // `request.held()` has this lease.
  std::string Start(const proto::NextRequest& request);
  // Sets the next lease of the worker that sent `request` in `reply`. May add further
  // leases (NextReply::more): all leases that the request should name and does not, or several new
  // ones without a staleness bound. If there is no lease now, returns false and sets `reason`.
  bool Offer(const proto::NextRequest& request, proto::NextReply* reply, std::string* reason);
  // Returns a number that rises if a call of Take, Start, Offer or set_gate may have changed the
  // results of Start or Offer for any worker. WorkTable counts the changes by Join, Lose and Adopt.
  uint64_t changes() const { return changes_; }

  // ---- After a restart of the chief
  //
  // Called for a lease that `worker` reports to a restarted chief. Assigns the lease to the worker
  // if no worker holds it. Returns false if the run has no lease `id`.
  bool Adopt(int worker, int64_t id);
  // See WorkTable::Reach.
  void Reach(int64_t lease) { leases_.Reach(lease); }
  // If `recovering` is false, the record counts the leases that no worker holds as repeated,
  // because they will be given out again. If `recovering` is true, workers may still report that
  // they hold these leases, so the record does not count them.
  Json ToRecord(bool recovering) const;
  // Replaces the content of this object by ToRecord() of an earlier chief. Returns DataError if the
  // record is malformed or belongs to another job. After an error, the content is unspecified.
  absl::Status Read(const Json& record);

  // ---- Progress
  //
  // Returns the steps completed since the last call, in the order of completion.
  std::vector<CompletedStep> TakeCompleted();
  bool has_completed() const { return !completed_.empty(); }
  const LeaseTable::Gate& gate() const { return leases_.gate(); }
  void set_gate(const LeaseTable::Gate& gate);
  // See WorkTable::SetRates.
  void SetRates(std::map<std::string, double> rates) { rates_ = std::move(rates); }
  checkpoint::TrainingState state() const;              // See WorkTable::state.
  int64_t torn_pushes() const { return torn_pushes_; }  // See WorkTable::torn_pushes.
  const LeaseTable& leases() const { return leases_; }
  const StepAccounts& steps() const { return steps_; }
  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }

 private:
  void Fill(int worker, const Lease& lease, proto::Lease* offer);
  // Returns the limit for the leases of one answer, so that all workers complete their last leases
  // at about the same time. An answer has at least one lease even if the limit is 0.
  int64_t FairShare() const;

  const Options options_;
  LeaseTable leases_;
  ClockTable clocks_;
  ShardLedger ledger_;
  StepAccounts steps_;
  std::set<int> pull_requested_;  // Workers that were asked to pull all parameters.
  std::deque<CompletedStep> completed_;
  std::map<std::string, double> rates_;  // Learning rates of the next leases, keyed by optimizer.
  int64_t torn_pushes_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace muster::chief
