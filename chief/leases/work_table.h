// WorkTable chooses the next work of each worker of a parameter-server job, and sums up the
// workers' results. The work of a worker is a training lease (a batch that the chief assigns to it,
// training_leases.h) or a part of a validation or test pass (evaluation_pass.h). For each worker,
// WorkTable itself records the process, whether the current work is void, and whether the worker
// must still report to a restarted chief. It reads proto::NextRequest, fills in proto::NextReply
// and does no I/O. DirectorState owns it. Used by one thread at a time.
//
// The chief stores its state regularly as a record on the ps tasks (chief_record.h). A restarted
// chief makes its WorkTable from this record.
#pragma once

#include <cstdint>
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
#include "chief/leases/training_leases.h"
#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

class WorkTable {
 public:
  struct Options : TrainingLeases::Options {
    int workers = 1;  // The number of workers in the cluster spec.
  };
  // Training begins or resumes from `state`.
  WorkTable(const Options& options, const checkpoint::TrainingState& state);

  // ---- Members
  //
  // Makes the process with this incarnation (a random number that identifies it) the worker
  // `worker`. `returning` is true if the process has worked for an earlier chief. Such a process
  // may report work that the record lacks.
  void SetWorker(int worker, uint64_t incarnation, bool returning);
  void LoseWorker(int worker);
  // Marks the worker's current work as void. Called if the servers no longer hold the parameters
  // from which the worker computes.
  void InvalidateWork(int worker) {
    workers_[worker].work_invalid = true;
    ++changes_;
  }
  // Knows returns whether the process with this incarnation is the worker `worker` now. HasSeen
  // also returns true if the worker `worker` is lost and this process was the last process of that
  // worker.
  bool HasSeen(int worker, uint64_t incarnation) const;
  bool Knows(int worker, uint64_t incarnation) const;
  std::map<int, uint64_t> workers() const;

  // ---- Calls of known workers
  //
  // Takes the results in the worker's report. Each lease counts once. Returns an error if the
  // report is impossible or comes from another program.
  absl::Status Take(const proto::NextRequest& request);
  // Sets the worker's next work in `reply`. If there is no work for the worker yet, returns false
  // and sets the reason in `reply`. If `shut` is not "", the table leases nothing, and `shut` is
  // the reason.
  bool Answer(const proto::NextRequest& request, const std::string& shut, proto::NextReply* reply);
  // Returns whether the worker's current work, or a part of it, is void.
  bool Abandoned(int worker) const;
  // Returns a number that rises whenever the result of Answer may change. If Answer has returned
  // false for a call, it returns false again while this number stays the same.
  uint64_t changes() const { return changes_ + training_.changes(); }

  // ---- For the Director (chief/parameter_server/director/director.h)
  //
  // Returns the steps completed since the last call, in the order of completion.
  std::vector<CompletedStep> TakeCompleted() { return training_.TakeCompleted(); }
  bool has_completed() const { return training_.has_completed(); }
  LeaseTable::Gate gate() const { return training_.gate(); }
  void set_gate(const LeaseTable::Gate& gate) { training_.set_gate(gate); }
  // Returns true if each training lease that was given out is complete, and no worker must
  // still report its work for an earlier chief. The servers then hold the state after a
  // whole number of steps. Parts of a pass may be unfinished, because they do not change the
  // state.
  bool between_steps() const { return !Adopting() && training_.none_open(); }
  // Returns the names of the workers with unfinished work, such as "worker 1, worker 2". If there
  // are no such workers, but some unfinished work has no worker, returns "a worker that takes a
  // lost one's lease". If there is no unfinished work, returns "nobody".
  std::string OutstandingWorkers() const;
  // Sets the learning rates of the leases that are given out after this call, keyed by optimizer.
  // Called when callbacks have chosen learning rates.
  void SetRates(std::map<std::string, double> rates) { training_.SetRates(std::move(rates)); }
  // Makes Answer tell workers that the job is done.
  void SetDone() {
    done_ = true;
    ++changes_;
  }
  // Makes every worker pull all parameters with its next lease.
  void PullAll() { training_.PullAll(); }
  // Returns the training state. If between_steps() is true, this is the state after the newest
  // completed step. Otherwise the epoch and the offset are the position of the next new lease. Does
  // not set the fields for the run id, the job, the versions and the due passes.
  checkpoint::TrainingState state() const { return training_.state(); }
  int64_t steps() const { return training_.leases().completed(); }
  bool all_done() const { return training_.leases().done(); }
  int64_t repeated_examples() const { return training_.leases().repeated_examples(); }
  int64_t refused_pushes() const { return training_.steps().refused_pushes(); }
  // Returns how often a worker was lost while it may have been computing a lease. The servers may
  // have applied a part of this lease's push, all of it, or nothing.
  int64_t torn_pushes() const { return training_.torn_pushes(); }
  // Returns the counts of the updates of each shard (the part of the variables on one ps task), and
  // of the lost updates among them.
  ShardLedger& ledger() { return training_.ledger(); }
  const ShardLedger& ledger() const { return training_.ledger(); }
  const std::map<int, StalenessRecord>& staleness() const { return training_.steps().staleness(); }
  int64_t batches_per_epoch() const { return training_.leases().batches_per_epoch(); }

  // ---- Validation and test passes. StartPass REQUIRES between_steps().
  void StartPass(int split, int64_t examples, int64_t batch);
  void CancelPass();
  using PassResult = EvaluationPass::Result;
  // Returns the results of the running pass, nullopt if no pass runs.
  std::optional<PassResult> pass() const;
  proto::Shown TakeShownInPass() { return pass_->TakeShown(); }  // REQUIRES: pass() has a value.

  // ---- For a restarted chief
  Json ToRecord() const { return training_.ToRecord(/*recovering=*/from_record_); }
  // Makes a table from ToRecord() of an earlier chief. The caller first calls SetWorker for each
  // worker and then FinishRecovery. The table leases nothing until all workers for which
  // `returning` was true have reported their work. Returns DataError if the record belongs to
  // another job.
  static absl::StatusOr<std::unique_ptr<WorkTable>> FromRecord(const Options& options,
                                                               const Json& record);
  void FinishRecovery();
  // Returns the names of the workers that must still report their work, such as "worker 1, worker
  // 2", or "".
  std::string WorkersNotReported() const;
  // Stops waiting for the workers of WorkersNotReported, and gives their leases to other workers.
  void AbandonRecovery();
  // Called after a restart if a server has received a push for lease `lease`. The earlier chief has
  // then given out this lease and all leases with lower ids. If the record lacks some of these
  // leases, they become leases that no worker holds.
  void Reach(int64_t lease) { training_.Reach(lease); }
  // Returns a number that rises with each important change: when a process becomes a worker, and
  // when the table takes back a lease of a lost worker. After such a change, no lease may be given
  // out until a server has stored a record that contains the change. Otherwise a restarted chief
  // would count lost pushes and repeated examples wrongly.
  uint64_t revision() const { return revision_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    bool alive = false, returning = false, reported = false;
    // True if the worker's current work is void. The next call of Take for this worker ignores the
    // results in the request, and adds the leases that the request names to `lost`. It then sets
    // `work_invalid` to false.
    bool work_invalid = false;
    // True if the worker has not yet reported its work for an earlier chief.
    bool unreported() const { return returning && !reported; }
    // The ids of leases that the table has taken back from the worker, but that the worker may
    // still hold.
    std::set<int64_t> lost;
  };

  // After a restart of the chief: returns the workers that must still report their work.
  std::set<int> NotReported() const;
  // Returns whether the table waits for reports of the workers in NotReported.
  bool Adopting() const { return !NotReported().empty(); }
  bool Holds(int worker, int64_t id) const;
  bool AnswerLost(const proto::NextRequest& request, proto::NextReply* reply);
  bool AnswerStart(const proto::NextRequest& request, proto::NextReply* reply);
  bool AnswerPart(const proto::NextRequest& request, proto::NextReply* reply);

  const Options options_;
  TrainingLeases training_;
  std::map<int, Worker> workers_;
  std::optional<EvaluationPass> pass_;
  bool done_ = false;
  // True if the table was made from a record, and some workers may still have to report.
  bool from_record_ = false;
  uint64_t revision_ = 0, changes_ = 1;
};

}  // namespace muster::chief
