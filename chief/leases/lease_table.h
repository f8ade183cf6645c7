// LeaseTable assigns the examples of a parameter-server job to workers. A lease is one batch in the
// order of its epoch. The leases of a lost worker return to the table. LeaseTable does no I/O. Used
// by one thread at a time.
//
// The id of a lease is (batches of an epoch) x epoch + (number in the epoch) + 1. A restarted chief
// can therefore compute the examples of any id that a worker reports, even if the chief's record is
// older than that lease.
//
// Each example of an epoch is leased exactly once if no worker is lost, else at least once. A lost
// worker may have pushed part of its batch before the batch is leased again. The next epoch begins
// once all batches of the current epoch are completed, because validation or a checkpoint may be
// due in between.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster::chief {

// A worker with this many leases, or parts of a pass, gets no more: the current one, and the next
// one, which it prefetches.
inline constexpr int kMaxHeld = 2;

// Examples [begin, end) in the order of their epoch.
struct Lease {
  int64_t id = 0;  // Counts from 1.
  int64_t epoch = 0;
  int64_t begin = 0, end = 0;
  bool again = false;  // A lost worker held the lease before.
  bool waits = false;  // The worker holds the lease but may not start it yet.
  int64_t examples() const { return end - begin; }
};

class LeaseTable {
 public:
  struct Options {
    int64_t examples = 0;  // Examples of an epoch, at least 1.
    int64_t batch = 1;     // Examples of a lease; an epoch's last lease may be shorter.
    int64_t epochs = 1;
    std::optional<int64_t> max_steps;  // Limit of completed leases in the whole run.
  };
  explicit LeaseTable(const Options& options) : options_(options) {}

  enum class State {
    kLeased,
    // No lease is available now. One may become available when another worker completes or loses a
    // lease.
    kWait,
    kDone,  // There are no more leases.
  };
  struct Answer {
    State state = State::kDone;
    Lease lease;         // Set if kLeased.
    bool moved = false;  // If kLeased: the lease was taken from another worker.
    std::string reason;  // If kWait: the reason to log.
  };
  // Leases a batch to `worker`, which may hold other leases. `waits` becomes Lease::waits. A
  // waiting lease of another worker moves to `worker` if there is no new lease, `worker` holds no
  // lease and `waits` is false. Without this rule, each of the two workers would wait for the
  // other.
  Answer Next(int worker, bool waits = false);
  // Sets Lease::waits of a held lease. Returns false if nothing changed.
  bool SetWaits(int64_t id, bool waits);
  // Called when the servers have applied the whole push of a lease. Returns false, and changes
  // nothing, if `worker` does not hold the lease: the table took it back when the worker was lost.
  bool Complete(int worker, int64_t lease);
  // Takes all leases of the lost worker back, for the next workers that ask. Returns the number of
  // these leases that the worker may have started.
  int Lose(int worker);
  // The limit for new leases. It does not apply to returned leases of lost workers.
  struct Gate {
    bool closed = false;
    std::optional<int64_t> steps;       // Limit for the number of completed and held leases.
    std::optional<int64_t> last_epoch;  // No lease of a later epoch is handed out.
    friend bool operator==(const Gate&, const Gate&) = default;
  };
  void set_gate(const Gate& gate) { gate_ = gate; }
  const Gate& gate() const { return gate_; }

  // ---- After FromRecord: leases that workers report and that the record does not have.
  //
  // Marks all leases up to `id` as handed out. New ones among them become returned leases. Returns
  // false if there is no such lease.
  bool Reach(int64_t id);
  // Assigns a returned lease to `worker`. Returns false if `id` is not a returned lease.
  bool Adopt(int worker, int64_t id);

  // The number of completed leases, which is the job's step.
  int64_t completed() const { return completed_; }
  int64_t examples() const { return examples_; }  // Examples of completed leases.
  int64_t repeated() const { return repeated_; }  // Leases that were handed out again.
  int64_t repeated_examples() const { return repeated_examples_; }
  int64_t epoch() const { return epoch_; }  // The epoch of the next new lease.
  // Returns each held lease and its worker, keyed by lease id.
  const std::map<int64_t, std::pair<int, Lease>>& held() const { return held_; }
  std::vector<Lease> held_by(int worker) const;                    // In the order of ids.
  const std::deque<Lease>& returned() const { return returned_; }  // The leases of lost workers.
  int64_t batches_per_epoch() const;
  // Returns the number of the step that a held lease becomes if leases are completed in the order
  // of their ids.
  int64_t StepOf(const Lease& lease) const {
    const auto out = static_cast<int64_t>(held_.size() + returned_.size());
    return completed_ + out - (next_id_ - 1 - lease.id);
  }
  bool done() const;  // All leases are completed.
  // Returns the last epoch with all leases completed, -1 if none.
  int64_t completed_epoch() const;

  // The part of a checkpoint that describes the leases. A table made from a Record hands out all
  // leases that were not completed.
  struct Record {
    int64_t epoch = 0, offset = 0;  // The first example of the next new lease.
    int64_t completed = 0, examples = 0, repeated = 0, repeated_examples = 0, next_id = 1;
    std::vector<Lease> open;  // Held or returned leases, ordered by id.
  };
  Record ToRecord() const;
  static LeaseTable FromRecord(const Options& options, const Record& record);
  // Returns the record of a run that resumes at `offset` in `epoch` with no open lease.
  static Record RecordAt(const Options& options, int64_t epoch, int64_t offset, int64_t completed,
                         int64_t examples);

 private:
  bool NoneLeft() const;  // No new lease is left.
  // Returns why no new lease may be handed out: none is left, the current epoch is not complete, or
  // the gate forbids it. Returns "" if one may be handed out.
  std::string WhyClosed() const;
  Lease TakeNew();
  // Takes a waiting lease from its holder. Returns false if no lease waits.
  bool TakeWaiting(Lease* lease);
  void Assign(int worker, const Lease& lease);

  Options options_;
  int64_t epoch_ = 0, offset_ = 0;
  int64_t next_id_ = 1;
  int64_t completed_ = 0, examples_ = 0, repeated_ = 0, repeated_examples_ = 0;
  Gate gate_;
  std::map<int64_t, std::pair<int, Lease>> held_;  // The worker and its lease, keyed by lease id.
  std::map<int, std::set<int64_t>> ids_of_;        // Ids of held leases, by worker.
  std::deque<Lease> returned_;  // The leases of lost workers, in the order of ids.
};

// ClockTable limits how far workers may run apart. A worker's clock is the number of batches that
// it has pushed. With the bound s, a worker may start its batch c (from 1) once every live worker
// has pushed its batch c - 1 - s. Without `max_staleness` there is no bound.
class ClockTable {
 public:
  explicit ClockTable(std::optional<int64_t> max_staleness) : max_staleness_(max_staleness) {}

  // Adds `worker` with the clock of the slowest worker, so that it delays no other worker.
  void Join(int worker);
  void Lose(int worker);
  // Counts a push of `worker`. Returns true if the slowest clock has risen.
  bool Tick(int worker);
  // Returns a worker that `worker` waits for, -1 if `worker` may start its next batch. If `later`
  // is 1, the question is about the batch after the next one. Once a worker may start a batch, it
  // always may.
  int WaitsFor(int worker, int64_t later = 0) const;
  int64_t clock(int worker) const;

 private:
  void Remove(int64_t clock);

  std::optional<int64_t> max_staleness_;
  std::map<int, int64_t> clocks_;
  std::map<int64_t, int> workers_at_;  // Maps a clock to the number of workers with that clock.
};

}  // namespace muster::chief
