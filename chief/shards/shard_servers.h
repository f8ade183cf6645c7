// The chief's state of the ps tasks of its job and of what each must be sent. It knows the process
// of each task, the shards that each serves in the current view, and the versions that each has
// received. Pure bookkeeping, no I/O. Used by one thread at a time.
//
// A task receives the workers, the record and the current view, in this order. The view is sent
// once some task has the record of it. A restarted chief then knows every view that a task may
// have.
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

namespace muster {

// The next call to a task, with its content.
struct ServerCall {
  enum class Kind { kNone, kCreate, kSetWorkers, kBeat, kSetView };
  Kind kind = Kind::kNone;
  MonotonicTime next;        // kNone: when to ask again if nothing happens before.
  uint64_t incarnation = 0;  // The process for which the call is meant.
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
  // `heartbeat`: how long a primary may wait for its backup. `rejoin`: how long a shard that no
  // task serves waits for a process that holds it.
  void SetPatience(Duration heartbeat, Duration rejoin) {
    heartbeat_ = heartbeat;
    rejoin_ = rejoin;
  }

  // ---- Processes. Functions that return true require a new view.
  //
  // Makes the process the task, in place of one that was lost.
  void Admit(const AdmittedMember& member);
  bool Lose(int task, const std::string& why, MonotonicTime now);
  // The process has ended, whether or not it was lost before, so its state is gone.
  void Ended(int task, uint64_t incarnation);
  bool Created(int task, proto::CreateReply reply);
  enum class Change { kNone, kRecord, kView };  // The part that must be renewed.
  Change Beaten(int task, const proto::BeatReply& reply);

  const AdmittedMember& member(int task) const { return servers_[task].member; }
  bool IsPresent(int task) const { return servers_[task].present(); }
  Present present() const;
  bool SomeHaveReturned() const;  // Some tasks of an earlier chief's run have returned.
  // Returns whether a process has taken a task and does not know its layout yet.
  bool SomeAreNew() const;
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- Calls
  ServerCall NextCall(int task, MonotonicTime now) const;
  void Failed(int task, MonotonicTime now);
  void Succeeded(int task, const ServerCall& call, MonotonicTime now);

  // ---- The versions that tasks receive
  void SetWorkers(std::map<int, uint64_t> workers);
  // Marks `worker`, which is one of them, as new. Nothing is leased to it before the tasks know it.
  void AddWorker(int worker) {
    worker_since_[worker] = workers_version_;
    ++changes_;
  }
  void RemoveWorker(int worker) { worker_since_.erase(worker); }
  // `news` is the value of WorkTable::news() whose changes the record includes.
  void SetRecord(std::string record, uint64_t news = 0);
  bool IsRecorded(uint64_t news) const { return news <= news_; }
  // As IsRecorded, and some task has the record.
  bool IsKept(uint64_t news) const { return IsRecorded(news) && SomeHaveRecord(news_record_); }
  uint64_t record_version() const { return record_version_; }
  // Returns whether some task, or each present one, has the record of that version or a later one.
  bool SomeHaveRecord(uint64_t version) const;
  bool AllHaveRecord(uint64_t version) const;
  // Makes a view of the current placements. `ledger` is null if no shard was ever restored.
  // SetRecord must follow.
  void NewView(uint64_t number, std::string ticket, const ShardLedger* ledger);
  const proto::View& view() const { return view_; }        // Number 0: none yet.
  uint64_t current_view() const { return current_view_; }  // The last one that all tasks received.
  bool all_have_view() const { return current_view_ == view_.number(); }
  // All shards are served, and every task knows by which task.
  bool Settled() const { return view_.number() != 0 && all_have_view() && Complete(placements_); }
  // Returns why nothing is leased to the worker yet, "" if leases are allowed.
  std::string WhyShut(int worker) const;

  // ---- Shards
  const Placements& placements() const { return placements_; }
  // Returns what to fill, as (shard, task), primaries before backups. These are the shards that no
  // task serves and that go back to an older state. From then on, no process that holds them is
  // waited for.
  std::vector<std::pair<int, int>> TakeUnserved(MonotonicTime now);
  // Reports that these were filled.
  void Restored(const std::vector<std::pair<int, int>>& targets);
  // Returns the highest lease whose push the tasks had seen when they were created.
  int64_t newest_lease() const;
  // Returns the newest record of an earlier chief that a task kept, if tasks hold shards of that
  // run. Returns a DataError for a record that no chief wrote.
  absl::StatusOr<std::optional<ChiefRecord>> NewestRecord() const;
  // Returns the part of the record's placements that the present tasks still hold.
  Placements HeldOf(const ChiefRecord& record) const;
  // Returns the holders of each shard that no task serves, for the record.
  std::vector<Holders> awaited() const;
  void Adopt(const ChiefRecord& record);

  // By variable, as the tasks last reported.
  std::map<int, TableStatistics> tables() const;
  // Rises with every change that a worker's call may wait for.
  uint64_t changes() const { return changes_; }

 private:
  // The versions that a task has received; 0 if none.
  struct Server {
    AdmittedMember member;     // Incarnation 0: there is no process.
    bool created = false;      // The process knows the layout.
    proto::CreateReply holds;  // Its content when it was created.
    uint64_t workers = 0, record = 0, view = 0;
    MonotonicTime next_beat, next_try;
    rpc::Backoff backoff;
    std::string trouble;  // The problem that was last logged.
    std::map<int, TableStatistics> tables;
    bool present() const { return member.incarnation != 0 && created; }
  };

  void SetHolders(int shard);
  bool TakeHeld(int task, const std::set<int>& serving);
  bool GoOnWithoutBackups(int task, const proto::BeatReply& reply);
  void CheckView();

  int copies_ = 1;
  Duration heartbeat_ = std::chrono::seconds(60), rejoin_ = std::chrono::minutes(10);
  std::vector<Server> servers_;
  Placements placements_;
  // By shard, for the last view that workers may know. Nothing was acknowledged in a later one.
  std::vector<Holders> holders_;
  std::vector<MonotonicTime> unserved_since_;
  std::map<int, uint64_t> workers_;
  uint64_t workers_version_ = 0;
  std::map<int, uint64_t> worker_since_;  // The first version of workers_ that has it.
  std::string record_;
  uint64_t record_version_ = 0;
  uint64_t news_ = 0, news_record_ = 0;  // The latest, and the first record that includes it.
  proto::View view_;
  uint64_t view_record_ = 0;  // The first version of the record that has view_.
  uint64_t current_view_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace muster
