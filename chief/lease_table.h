// Which worker of a parameter-server job works on which examples: batches of an epoch's order are
// leased, and come back when their worker is lost. Pure bookkeeping, no I/O; for one thread at a
// time.
//
// A lease's id tells its place: (batches of an epoch) x epoch + (number in it) + 1. So a chief that
// was restarted knows what a worker speaks of, also where its record is older than that lease.
//
// Each example of an epoch is leased exactly once when nobody dies, and at least once otherwise: a
// lost worker's batch may have been pushed in part, and is leased again. An epoch's last batches
// are completed before the next epoch's first one is leased: validation or a checkpoint may be due
// there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster {

// Examples [begin, end) of an epoch, in that epoch's order.
struct Lease {
  int64_t id = 0;  // from 1
  int64_t epoch = 0;
  int64_t begin = 0, end = 0;
  bool again = false;  // a lost worker had it before
  bool waits = false;  // its worker may not start it yet
  int64_t examples() const { return end - begin; }
};

class LeaseTable {
 public:
  struct Options {
    int64_t examples = 0;  // of an epoch, at least 1
    int64_t batch = 1;     // of a lease; an epoch's last one may be shorter
    int64_t epochs = 1;
    std::optional<int64_t> max_steps;  // completed leases of the whole run
  };
  explicit LeaseTable(const Options& options) : options_(options) {}

  enum class State {
    kLeased,
    kWait,  // nothing now; there may be, when other workers have completed or lost theirs
    kDone,  // no lease will be given any more
  };
  struct Answer {
    State state = State::kDone;
    Lease lease;         // kLeased
    bool moved = false;  // ... another worker held it
    std::string reason;  // kWait, for a log
  };
  // `worker` may hold others. `waits`: Lease's. Where there is no new one, a worker that holds none
  // and need not wait gets one that another holds and has not started: each would wait for the
  // other.
  Answer Next(int worker, bool waits = false);
  // Of a held one. False: it was so before.
  bool SetWaits(int64_t id, bool waits);
  // The whole push of `worker`'s lease was applied. False: it does not hold that one (it was lost
  // meanwhile, and its lease with it), and nothing changed.
  bool Complete(int worker, int64_t lease);
  // Its leases go to the next ones who ask. How many it held that it may have started.
  int Lose(int worker);
  // What no new lease passes for now; those of lost workers do.
  struct Gate {
    bool closed = false;
    std::optional<int64_t> steps;       // completed, or out
    std::optional<int64_t> last_epoch;  // none of a later one
    friend bool operator==(const Gate&, const Gate&) = default;
  };
  void set_gate(const Gate& gate) { gate_ = gate; }
  const Gate& gate() const { return gate_; }

  // ---- After FromRecord: what workers tell that the record does not know.
  // All leases up to `id` are given, at least to nobody in particular. False: there is no such one.
  bool Reach(int64_t id);
  // An open one is `worker`'s. False: it is not open.
  bool Adopt(int worker, int64_t id);

  int64_t completed() const { return completed_; }  // leases: the job's steps
  int64_t examples() const { return examples_; }    // of completed leases
  int64_t repeated() const { return repeated_; }    // leases that were given again
  int64_t repeated_examples() const { return repeated_examples_; }
  int64_t epoch() const { return epoch_; }  // of the next new lease
  const std::map<int64_t, std::pair<int, Lease>>& held() const { return held_; }  // id -> by whom
  std::vector<Lease> held_by(int worker) const;                                   // by id
  const std::deque<Lease>& returned() const { return returned_; }                 // by lost workers
  int64_t batches_per_epoch() const;
  // The step that a held lease makes, if all are completed in the order of their ids.
  int64_t StepOf(const Lease& lease) const {
    const auto out = static_cast<int64_t>(held_.size() + returned_.size());
    return completed_ + out - (next_id_ - 1 - lease.id);
  }
  bool done() const;  // all are completed
  // The last epoch of which every lease is completed; -1: none.
  int64_t completed_epoch() const;

  // What a checkpoint holds: all that is not completed. A table that is made of it leases the rest.
  struct Record {
    int64_t epoch = 0, offset = 0;  // of the next new lease
    int64_t completed = 0, examples = 0, repeated = 0, repeated_examples = 0, next_id = 1;
    std::vector<Lease> open;  // leased or returned, in the order of ids
  };
  Record ToRecord() const;
  static LeaseTable FromRecord(const Options& options, const Record& record);
  // Of a run that goes on at a place where nothing is open.
  static Record RecordAt(const Options& options, int64_t epoch, int64_t offset, int64_t completed,
                         int64_t examples);

 private:
  bool NoneLeft() const;        // no new one
  std::string WhyShut() const;  // none left, an epoch that is not through, the gate; "": none of it
  Lease TakeNew();
  // One that waits is nobody's any more. False: there is none.
  bool TakeWaiting(Lease* lease);
  void Hold(int worker, const Lease& lease);

  Options options_;
  int64_t epoch_ = 0, offset_ = 0;
  int64_t next_id_ = 1;
  int64_t completed_ = 0, examples_ = 0, repeated_ = 0, repeated_examples_ = 0;
  Gate gate_;
  std::map<int64_t, std::pair<int, Lease>> held_;  // by id: of which worker
  std::map<int, std::set<int64_t>> ids_of_;        // held, by worker
  std::deque<Lease> returned_;                     // by lost workers, in the order of ids
};

// How far workers may run apart: batch c of a worker (from 1) starts when every live worker has
// pushed its batch c - 1 - s. `max_staleness` absent: as far as they like.
class ClockTable {
 public:
  explicit ClockTable(std::optional<int64_t> max_staleness) : max_staleness_(max_staleness) {}

  // From now on it counts, from where the slowest is, so that it holds nobody up.
  void Join(int worker);
  void Lose(int worker);
  // It has pushed its next batch. True: the slowest ones are further now.
  bool Tick(int worker);
  // -1: it may start its next batch, or, with `later` 1, the one after that, and so for good; else
  // a worker that it waits for.
  int WaitsFor(int worker, int64_t later = 0) const;
  int64_t clock(int worker) const;  // batches pushed

 private:
  void Remove(int64_t clock);

  std::optional<int64_t> max_staleness_;
  std::map<int, int64_t> clocks_;
  std::map<int64_t, int> workers_at_;  // how many, by clock
};

}  // namespace muster
