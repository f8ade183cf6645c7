// LeaseTable assigns the training examples of a parameter-server job to workers. A lease is one
// batch that is assigned to one worker. A batch is a range of examples in the order of the
// epoch. All processes compute this order in the same way. When a worker is lost, the table
// assigns the worker's leases to other workers. LeaseTable does no I/O. Used by one thread at a
// time.
//
// The id of a lease is (batches per epoch) * epoch + (index of the batch in the epoch) + 1. Epochs
// and indices count from 0. A restarted chief may read a record (chief_record.h) that lacks the
// newest leases. If a worker reports the id of a missing lease, the chief can still compute the
// examples of the lease from the id.
//
// If no worker is lost, each example of an epoch is trained exactly once. Otherwise an example may
// be trained several times, and a lost worker may have pushed only a part of the gradients of its
// last batches. A validation pass or a checkpoint may be due between two epochs. The table
// therefore leases no batch of the next epoch before all batches of the current epoch are complete.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster::chief {

// A worker with this many leases (or parts of a pass) gets no more. It computes one and prefetches
// the next. Without a staleness bound, one answer may exceed this number (NextRequest::want).
inline constexpr int kMaxHeld = 2;

// All ids of leases are below this number. EvaluationPass (evaluation_pass.h) uses the ids from
// this number on.
inline constexpr int64_t kEndOfLeaseIds = int64_t{1} << 62;

// Examples [begin, end) in the order of their epoch.
struct Lease {
  int64_t id = 0;     // Counts from 1.
  int64_t epoch = 0;  // Counts from 0.
  int64_t begin = 0, end = 0;
  bool again = false;  // True if a lost worker may have held the lease.
  bool waits = false;  // True if the worker must not start the lease yet (see ClockTable).
  int64_t examples() const { return end - begin; }
};

class LeaseTable {
 public:
  struct Options {
    int64_t examples = 0;  // The number of examples of an epoch, at least 1.
    // The number of examples of a lease. The first lease after a resume and the last lease of an
    // epoch may have fewer examples.
    int64_t batch = 1;
    int64_t epochs = 1;
    std::optional<int64_t> max_steps;  // Limit for the number of completed leases in the run.
  };
  explicit LeaseTable(const Options& options) : options_(options) {}

  enum class State {
    kLeased,
    // No lease is available now. A lease may become available when a worker completes a lease or is
    // lost, or when the gate (see Gate) changes.
    kWait,
    kDone,  // All leases of the run are complete.
  };
  struct Answer {
    State state = State::kDone;
    Lease lease;  // Set for kLeased.
    // For kLeased: true if the lease was taken from another worker, which was not allowed to start
    // the lease yet (Lease::waits). The other worker must drop the lease.
    bool moved = false;
    std::string reason;  // For kWait: the reason, for the log.
  };
  // Leases a batch to `worker`, which may hold other leases. `waits` becomes Lease::waits. The
  // table takes a lease with Lease::waits from another worker if three things are true: there is no
  // other lease to give out, `worker` holds no lease, and `waits` is false. Without this rule, the
  // two workers could wait for each other: the other worker would wait for a push of `worker`, and
  // `worker` would wait for a lease.
  Answer Next(int worker, bool waits = false);
  // Sets Lease::waits of a held lease. Returns false if nothing changed.
  bool SetWaits(int64_t id, bool waits);
  // Called when the servers have applied the whole push (all gradients) of the lease with the id
  // `lease`. Returns false and changes nothing if `worker` does not hold this lease. After Lose, a
  // worker holds no leases.
  bool Complete(int worker, int64_t lease);
  // Takes back all leases of a lost worker, so that other workers can get them. Returns the number
  // of these leases that the lost worker may have started.
  int Lose(int worker);
  // A limit for new leases. Leases that were taken back from lost workers are given out regardless
  // of the limit.
  struct Gate {
    bool closed = false;                // True: give out no new lease.
    std::optional<int64_t> steps;       // Limit for the number of completed and held leases.
    std::optional<int64_t> last_epoch;  // Give out no lease of a later epoch.
    friend bool operator==(const Gate&, const Gate&) = default;
  };
  void set_gate(const Gate& gate) { gate_ = gate; }
  const Gate& gate() const { return gate_; }

  // ---- After a restart of the chief, for leases that workers report and the record lacks
  //
  // Treats all leases with ids up to `id` as given out. Leases that were not given out before
  // become returned leases, which no worker holds. Returns false and changes nothing if the run has
  // no lease `id`.
  bool Reach(int64_t id);
  // Assigns the returned lease `id` to `worker`. Returns false if `id` is not a returned lease.
  bool Adopt(int worker, int64_t id);

  // Returns the number of completed leases. This number is the step of the job.
  int64_t completed() const { return completed_; }
  int64_t examples() const { return examples_; }  // The number of examples of completed leases.
  // Returns the number of examples of the returned leases that were given out again.
  int64_t repeated_examples() const { return repeated_examples_; }
  // Returns each held lease and its worker, keyed by lease id.
  const std::map<int64_t, std::pair<int, Lease>>& held() const { return held_; }
  std::vector<Lease> held_by(int worker) const;  // Ordered by id.
  // Returns the open leases that no worker holds, ordered by id. An open lease was given out and is
  // not complete.
  const std::deque<Lease>& returned() const { return returned_; }
  int64_t batches_per_epoch() const;
  // Returns the number of leases that Next can give out before all workers must wait for open
  // leases: at the end of the epoch or of the run, or at a limit of the gate.
  int64_t until_wait() const;
  // Returns the number of the step in which a held lease completes, if all leases complete in the
  // order of their ids.
  int64_t StepOf(const Lease& lease) const {
    return completed_ + open() - (next_id_ - 1 - lease.id);
  }
  bool done() const;  // True if all leases of the run are complete.
  // Returns the last epoch whose leases are all complete, -1 if none.
  int64_t completed_epoch() const;

  // The content of a table, for the chief's record (chief_record.h). A table that is made from a
  // Record gives out the leases in `open` first. `repeated` is the number of returned leases that
  // were given out again.
  struct Record {
    int64_t epoch = 0, offset = 0;  // The epoch and the first example of the next new lease.
    int64_t completed = 0, examples = 0, repeated = 0, repeated_examples = 0, next_id = 1;
    std::vector<Lease> open;  // Leases that were given out and are not complete, ordered by id.
  };
  Record ToRecord() const;
  static LeaseTable FromRecord(const Options& options, const Record& record);
  // Returns the record of a run that resumes from a checkpoint, at the example `offset` of `epoch`.
  // No lease is open. `completed` and `examples` become the fields of Record.
  static Record RecordAt(const Options& options, int64_t epoch, int64_t offset, int64_t completed,
                         int64_t examples);

 private:
  int64_t open() const { return static_cast<int64_t>(held_.size() + returned_.size()); }
  bool NoneLeft() const;       // True if no new lease is left.
  bool Has(int64_t id) const;  // True if a lease of the run has, or will have, this id.
  // Returns "" if a new lease may be given out. Otherwise returns the reason: no new lease is left,
  // the current epoch is not complete, or the gate forbids new leases.
  std::string WhyClosed() const;
  Lease TakeNew();
  // Takes a lease with Lease::waits from its worker. Returns false if there is no such lease.
  bool TakeWaiting(Lease* lease);
  void Assign(int worker, const Lease& lease);

  Options options_;
  int64_t epoch_ = 0, offset_ = 0;
  int64_t next_id_ = 1;
  int64_t completed_ = 0, examples_ = 0, repeated_ = 0, repeated_examples_ = 0;
  Gate gate_;
  std::map<int64_t, std::pair<int, Lease>> held_;  // Each worker and its lease, keyed by lease id.
  std::map<int, std::set<int64_t>> ids_of_;        // The ids of held leases, keyed by worker.
  std::deque<Lease> returned_;                     // Ordered by id.
};

// ClockTable limits how many batches a worker may be ahead of the slowest worker. The clock of a
// worker is the number of batches that it has pushed. Let s be `max_staleness`. A worker may start
// its batch c (counted from 1) once every live worker has pushed its batch c - 1 - s. Without
// `max_staleness` there is no limit.
class ClockTable {
 public:
  explicit ClockTable(std::optional<int64_t> max_staleness) : max_staleness_(max_staleness) {}

  // Adds `worker` with the clock of the slowest worker, so that no other worker has to wait longer.
  void Join(int worker);
  void Lose(int worker);
  int workers() const { return static_cast<int>(clocks_.size()); }
  // Counts a push of `worker`. Returns true if the lowest clock has risen.
  bool Tick(int worker);
  // Returns -1 if `worker` may start its next batch. Otherwise returns a worker for which `worker`
  // must wait. With `later` = n, answers for the n-th batch after the next batch. A permission to
  // start a batch stays valid: no action of another worker revokes it.
  int WaitsFor(int worker, int64_t later = 0) const;

 private:
  void Remove(int64_t clock);

  std::optional<int64_t> max_staleness_;
  std::map<int, int64_t> clocks_;
  std::map<int64_t, int> workers_at_;  // Maps a clock to the number of workers with that clock.
};

}  // namespace muster::chief
