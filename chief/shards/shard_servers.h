// ShardServers is what the chief knows about the ps tasks. For each task it has the process, the
// shards that the task serves in the current view, and the versions of workers, record and view
// that the task has received. From this it derives the next call to each task. The Director owns
// it. It does no I/O. Used by one thread at a time.
//
// Each task receives the workers, the record and the current view, in this order. The chief sends a
// view only once some task has stored a record that contains the view. A restarted chief therefore
// knows every view that a task may have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chief/coordinator/member_events.h"
#include "chief/leases/chief_record.h"
#include "chief/leases/shard_ledger.h"
#include "chief/leases/view_rules.h"
#include "common/base/clock.h"
#include "common/push_pull/rows/table_statistics.h"
#include "common/rpc/retry.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

// The next call to a task, with its content.
struct ServerCall {
  enum class Kind { kNone, kCreate, kSetWorkers, kBeat, kSetView };
  Kind kind = Kind::kNone;
  MonotonicTime next;        // For kNone: the time of the next call if nothing changes before.
  uint64_t incarnation = 0;  // The process that the call is for.
  uint64_t version = 0;      // The version of the call's content.
  std::map<int, uint64_t> workers;
  std::string record;
  proto::View view;
};

class ShardServers {
 public:
  explicit ShardServers(int servers)
      : servers_(servers), placements_(servers), holders_(servers), unserved_since_(servers) {}
  // Sets the number of copies of each shard. Called before the first server is created.
  void SetCopies(int64_t copies) { copies_ = static_cast<int>(copies); }
  // A primary may wait for its backup for `heartbeat`. The chief waits for a process that holds an
  // unserved shard for `rejoin`. After that time the shard rolls back.
  void SetPatience(Duration heartbeat, Duration rejoin) {
    heartbeat_ = heartbeat;
    rejoin_ = rejoin;
  }

  // ---- Processes. If a function returns true, the caller must make a new view.
  //
  // Makes `member` the process of its task, in place of a lost one.
  void Admit(const AdmittedMember& member);
  bool Lose(int task, const std::string& why, MonotonicTime now);
  // Called when the process has certainly ended, so its state is gone. Lose may have been called
  // before.
  void Ended(int task, uint64_t incarnation);
  bool Created(int task, proto::CreateReply reply);
  enum class Change { kNone, kRecord, kView };  // The part that the caller must renew.
  Change HandleBeat(int task, const proto::BeatReply& reply);

  const AdmittedMember& member(int task) const { return servers_[task].member; }
  bool IsPresent(int task) const { return servers_[task].present(); }
  Present present() const;
  // Returns whether a task has joined that holds state from the time of an earlier chief.
  bool SomeHaveReturned() const;
  // Returns whether some present process does not know its layout yet.
  bool SomeAreNew() const;
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- Calls
  ServerCall NextCall(int task, MonotonicTime now) const;
  void Failed(int task, MonotonicTime now);
  void Succeeded(int task, const ServerCall& call, MonotonicTime now);

  // ---- The versions that tasks receive
  void SetWorkers(std::map<int, uint64_t> workers);
  // Marks `worker`, which SetWorkers has set, as new. Nothing is leased to it before all tasks know
  // it.
  void AddWorker(int worker) {
    worker_since_[worker] = workers_version_;
    ++changes_;
  }
  void RemoveWorker(int worker) { worker_since_.erase(worker); }
  // `revision` is the value of WorkTable::revision() when the record was made.
  void SetRecord(std::string record, uint64_t revision = 0);
  bool IsRecorded(uint64_t revision) const { return revision <= revision_; }
  // Returns whether IsRecorded(revision) is true and some task has that record.
  bool IsKept(uint64_t revision) const {
    return IsRecorded(revision) && SomeHaveRecord(revision_record_);
  }
  uint64_t record_version() const { return record_version_; }
  // SomeHaveRecord returns whether some task has a record of `version` or later. AllHaveRecord
  // returns whether each present task has one.
  bool SomeHaveRecord(uint64_t version) const;
  bool AllHaveRecord(uint64_t version) const;
  // Makes a view with the current placements. `ledger` may be null if no shard was ever restored.
  // The caller must call SetRecord next.
  void NewView(uint64_t number, std::string ticket, const ShardLedger* ledger);
  const proto::View& view() const { return view_; }        // Number 0: none yet.
  uint64_t current_view() const { return current_view_; }  // The last view that all tasks received.
  bool all_have_view() const { return current_view_ == view_.number(); }
  // Returns true if all shards are served and every task has the current view.
  bool Settled() const { return view_.number() != 0 && all_have_view() && Complete(placements_); }
  // Returns why nothing is leased to the worker yet, "" if leases are allowed.
  std::string WhyClosed(int worker) const;

  // ---- Shards
  const Placements& placements() const { return placements_; }
  // Returns (shard, task) for each copy to fill, with a shard's primary before its backup. The
  // shards are those that no task serves and that must now roll back to an older state. The chief
  // no longer waits for processes that hold these shards.
  std::vector<std::pair<int, int>> TakeUnserved(MonotonicTime now);
  // Called when the targets from TakeUnserved were filled.
  void Restored(const std::vector<std::pair<int, int>>& targets);
  // Returns the highest lease that a task had received a push for before it joined.
  int64_t newest_lease() const;
  // Returns the newest record that an earlier chief stored on a task. Returns nullopt unless tasks
  // hold shards of that run. Returns DataError for an invalid record.
  absl::StatusOr<std::optional<ChiefRecord>> NewestRecord() const;
  // Returns the part of the record's placements that the present tasks still hold.
  Placements PlacementsIn(const ChiefRecord& record) const;
  // Returns the processes that hold each unserved shard, for the record.
  std::vector<Holders> awaited() const;
  void Adopt(const ChiefRecord& record);

  // Returns the statistics of embedding tables, keyed by variable, from the tasks' last reports.
  std::map<int, push_pull::TableStatistics> tables() const;
  // Increases with every change that a worker's call may wait for.
  uint64_t changes() const { return changes_; }

 private:
  // A ps task. `workers`, `record` and `view` are the versions that it has received, 0 if none.
  struct Server {
    AdmittedMember member;     // Incarnation 0: there is no process.
    bool created = false;      // The process knows the layout.
    proto::CreateReply holds;  // The process's shards and record when it joined.
    uint64_t workers = 0, record = 0, view = 0;
    MonotonicTime next_beat, next_try;
    rpc::Backoff backoff;
    std::string last_error;  // The problem that was last logged.
    std::map<int, push_pull::TableStatistics> tables;
    bool present() const { return member.incarnation != 0 && created; }
  };

  void SetHolders(int shard);
  bool TakeHeld(int task, const std::set<int>& serving);
  bool DropBackups(int task, const proto::BeatReply& reply);
  void CheckView();

  int copies_ = 1;
  Duration heartbeat_ = std::chrono::seconds(60), rejoin_ = std::chrono::minutes(10);
  std::vector<Server> servers_;
  Placements placements_;
  // Indexed by shard. An entry has the processes with all updates that were acknowledged in the
  // last view that workers may know. No update was acknowledged in a later view.
  std::vector<Holders> holders_;
  std::vector<MonotonicTime> unserved_since_;
  std::map<int, uint64_t> workers_;
  uint64_t workers_version_ = 0;
  // Maps a worker to the first version of workers_ that includes it.
  std::map<int, uint64_t> worker_since_;
  std::string record_;
  uint64_t record_version_ = 0;
  // The latest value passed to SetRecord, and the version of the first record with it.
  uint64_t revision_ = 0, revision_record_ = 0;
  proto::View view_;
  uint64_t view_record_ = 0;  // The first version of the record with view_.
  uint64_t current_view_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace muster::chief
