// ShardServers has the chief's data about the ps tasks. A shard is the part of the variables that
// one ps task holds. A view is a numbered assignment of shards to ps tasks: the primary serves the
// workers, and the backup has a copy (chief/leases/view_rules.h). ShardAssignment
// (shard_assignment.h) records which task has which shard. The record is the state of the chief
// from which a restarted chief continues (chief/leases/chief_record.h).
//
// The chief sends three things to each ps task: the list of workers, the record, and the view. Each
// of the three has a version, which rises with each change. ShardServers knows which versions a
// task has received, and derives the next call to each task. A task receives new versions in the
// order workers, record, view. The chief sends a view only after some task has stored a record that
// contains the view. A restarted chief therefore knows every view that a task may have.
//
// ShardServers does no I/O. DirectorState owns it. Used by one thread at a time.
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
#include "chief/shards/shard_assignment.h"
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
  MonotonicTime next;  // For kNone: the time of the next call, if nothing changes until then.
  // The process that the call is for. An incarnation is a random number that identifies a process.
  uint64_t incarnation = 0;
  uint64_t version = 0;  // The version of the workers, the record or the view in the call.
  std::map<int, uint64_t> workers;
  std::string record;
  proto::View view;
};

class ShardServers {
 public:
  explicit ShardServers(int servers) : servers_(servers), assignment_(servers) {}
  // Sets the number of copies of each shard. Called before the first call of Created.
  void SetCopies(int64_t copies) { assignment_.SetCopies(copies); }
  // A primary waits up to `heartbeat`, but at most a minute, for an unreachable backup. The primary
  // then continues without the backup. If no task serves a shard, the chief waits up to `rejoin`
  // for a process that holds the shard, and then restores the shard from an older state.
  void SetPatience(Duration heartbeat, Duration rejoin) {
    assignment_.SetPatience(heartbeat, rejoin);
  }

  // ---- Processes
  //
  // If Lose or Created returns true, the caller must call NewView.
  //
  // Makes `member` the process of its task, in place of a lost process.
  void Admit(const AdmittedMember& member);
  bool Lose(int task, const std::string& why, MonotonicTime now);
  // Called when the process has certainly ended, so its state is gone. May be called before or
  // after Lose.
  void Ended(int task, uint64_t incarnation) { assignment_.Ended(task, incarnation); }
  // Called when the task has answered a call of kind kCreate.
  bool Created(int task, proto::CreateReply reply);
  // The objects that the caller must replace after HandleBeat: none, the record, or the view and
  // the record.
  using Change = ShardAssignment::Change;
  // Called when the task has answered a call of kind kBeat.
  Change HandleBeat(int task, const proto::BeatReply& reply);

  const AdmittedMember& member(int task) const { return servers_[task].member; }
  bool IsPresent(int task) const { return servers_[task].present(); }
  Present present() const;
  // Returns true if a task has a process that was a member before (AdmittedMember::again). Such a
  // process may hold the run's state.
  bool SomeHaveReturned() const;
  // Returns whether some task has a process that has not answered its kCreate yet.
  bool SomeAreNew() const;
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- Calls
  // Returns the next call to `task`. The caller reports the result with Failed or Succeeded.
  ServerCall NextCall(int task, MonotonicTime now) const;
  void Failed(int task, MonotonicTime now);
  void Succeeded(int task, const ServerCall& call, MonotonicTime now);

  // ---- The workers, records and views that tasks receive
  //
  // Sets the present workers. `workers` maps each worker to its incarnation.
  void SetWorkers(std::map<int, uint64_t> workers);
  // Marks `worker` as new. The chief gives no lease (batch) to a new worker before all tasks have
  // received a list with this worker. REQUIRES: SetWorkers was called with this worker.
  void AddWorker(int worker) {
    worker_since_[worker] = workers_version_;
    ++changes_;
  }
  void RemoveWorker(int worker) { worker_since_.erase(worker); }
  // Sets the record, as text. `revision` is the value of WorkTable::revision() when the record was
  // made.
  void SetRecord(std::string record, uint64_t revision);
  // Returns whether the newest record includes the WorkTable's changes up to `revision`.
  bool IsRecorded(uint64_t revision) const { return revision <= revision_; }
  // Returns whether some task has stored a record for which IsRecorded(revision) is true.
  bool IsKept(uint64_t revision) const {
    return IsRecorded(revision) && SomeHaveRecord(revision_record_);
  }
  uint64_t record_version() const { return record_version_; }
  // SomeHaveRecord returns whether some present task has stored the record `version` or a later
  // record. AllHaveRecord returns whether every present task has stored the record `version` or a
  // later record.
  bool SomeHaveRecord(uint64_t version) const;
  bool AllHaveRecord(uint64_t version) const;
  // Makes a new view with the current placements. Data connections must present `ticket`, a random
  // secret of the view. `ledger` has the views in which shards were restored. `ledger` is null
  // before training. The caller must call SetRecord next.
  void NewView(uint64_t number, std::string ticket, const ShardLedger* ledger);
  // Returns the newest view. Its number is 0 before the first NewView.
  const proto::View& view() const { return view_; }
  // Returns the number of the last view that all present tasks have received.
  uint64_t current_view() const { return current_view_; }
  bool all_have_view() const { return current_view_ == view_.number(); }
  // Returns whether each shard has a primary and all present tasks have the newest view.
  bool Settled() const { return view_.number() != 0 && all_have_view() && Complete(placements()); }
  // Returns why the chief must not give a lease to the worker now, "" if the chief may do so.
  std::string WhyClosed(int worker) const;

  // ---- Shards
  const Placements& placements() const { return assignment_.placements(); }
  // Returns the copies of shards that the caller must now fill from an older state. Each copy is
  // given as (shard, task). The result contains a shard if no task serves the shard, and no process
  // with the shard can return. It also contains an unserved shard once the wait for such a process
  // (`rejoin`) is over. The primary of a shard comes before its backup. After this call, the chief
  // no longer waits for processes that hold these shards.
  std::vector<std::pair<int, int>> TakeUnserved(MonotonicTime now) {
    return assignment_.TakeUnserved(present(), now);
  }
  // Called when the caller has filled the copies that TakeUnserved returned.
  void Restored(const std::vector<std::pair<int, int>>& targets);
  // Each task that joins reports the highest id of a lease (a batch of a worker) for which it has
  // received at least a part of a push. Returns the highest id in these reports.
  int64_t newest_lease() const;
  // Returns the newest record that an earlier chief has stored on a present task. Returns nullopt
  // if no present task holds a shard, or if there is no record. Returns an error for an invalid
  // record.
  absl::StatusOr<std::optional<ChiefRecord>> NewestRecord() const;
  // Returns the placements of `record`. Omits a task from a shard's placement if the task does not
  // serve this shard now. If a shard has no primary in `record`, a process of ChiefRecord::awaited
  // becomes the primary, provided that the process is present and holds the shard.
  Placements PlacementsIn(const ChiefRecord& record) const;
  // Returns ChiefRecord::awaited: for each shard without a primary, the processes that hold it.
  std::vector<Holders> awaited() const { return assignment_.awaited(); }
  // Continues with the placements of an earlier chief.
  void Adopt(const ChiefRecord& record);

  // Returns the statistics of embedding tables, keyed by variable, from the tasks' last reports.
  std::map<int, push_pull::TableStatistics> tables() const;
  // Returns a number that rises with every change that may let the chief answer a worker's waiting
  // call (LeaseCalls).
  uint64_t changes() const { return changes_; }

 private:
  // A ps task. `workers`, `record` and `view` are the versions that the task has received, 0 if
  // none.
  struct Server {
    AdmittedMember member;     // Incarnation 0: the task has no process.
    bool created = false;      // True if Created was called for the process.
    proto::CreateReply holds;  // The shards and the record that the process had when it joined.
    uint64_t workers = 0, record = 0, view = 0;
    MonotonicTime next_beat, next_try;
    rpc::Backoff backoff;
    std::string last_error;  // The last problem that the task has reported.
    std::map<int, push_pull::TableStatistics> tables;
    bool present() const { return member.incarnation != 0 && created; }
  };

  ServerProcesses processes() const;
  void CheckView();

  std::vector<Server> servers_;
  ShardAssignment assignment_;
  std::map<int, uint64_t> workers_;
  uint64_t workers_version_ = 0;
  // Maps a worker to the first version of workers_ that includes the worker.
  std::map<int, uint64_t> worker_since_;
  std::string record_;
  uint64_t record_version_ = 0;
  // The highest revision in SetRecord, and the version of the first record with this revision.
  uint64_t revision_ = 0, revision_record_ = 0;
  proto::View view_;
  uint64_t view_record_ = 0;  // The first version of the record with view_.
  uint64_t current_view_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace muster::chief
