// What a chief knows of the ps tasks of its job, and what each of them is to be sent: which process
// is which task, which task serves which shard in the view of now, and how far each has been
// brought. Pure bookkeeping, no I/O; for one thread at a time.
//
// A task is brought to the workers, the record and the view of now, in this order. The view is sent
// when some task has the record of it: a restarted chief then knows every view that a task may
// have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chief/chief_record.h"
#include "chief/member_events.h"
#include "chief/shard_ledger.h"
#include "chief/view_rules.h"
#include "common/base/clock.h"
#include "common/push_pull/table_statistics.h"
#include "common/rpc/retry.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// A call that a task is to get now, with what it carries.
struct ServerCall {
  enum class Kind { kNone, kCreate, kSetWorkers, kBeat, kSetView };
  Kind kind = Kind::kNone;
  MonotonicTime next;        // kNone: when to look again, if nothing happens before
  uint64_t incarnation = 0;  // of the process that it is for
  uint64_t version = 0;      // of what it carries
  std::map<int, uint64_t> workers;
  std::string record;
  proto::View view;
};

class ShardServers {
 public:
  explicit ShardServers(int servers)
      : servers_(servers), placements_(servers), holders_(servers), unserved_since_(servers) {}
  // Of each shard; before the first server is created.
  void SetCopies(int64_t copies) { copies_ = static_cast<int>(copies); }
  // How long a primary may wait for its backup, and a shard that no task serves for a process that
  // holds it.
  void SetPatience(Duration heartbeat, Duration rejoin) {
    heartbeat_ = heartbeat;
    rejoin_ = rejoin;
  }

  // ---- Processes. Those that return true ask for a new view.
  // The process is the task from now on, in the place of one that was lost.
  void Admit(const AdmittedMember& member);
  bool Lose(int task, const std::string& why, MonotonicTime now);
  // The process has ended, whether or not it was lost before: what it held is gone.
  void Ended(int task, uint64_t incarnation);
  bool Created(int task, proto::CreateReply reply);
  enum class Change { kNone, kRecord, kView };  // what is to be made anew
  Change Beaten(int task, const proto::BeatReply& reply);

  const AdmittedMember& member(int task) const { return servers_[task].member; }
  bool IsPresent(int task) const { return servers_[task].present(); }
  Present present() const;
  bool SomeHaveReturned() const;  // of those of a chief before this one
  // That a process has taken a task, and does not know its layout yet.
  bool SomeAreNew() const;
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- Calls
  ServerCall NextCall(int task, MonotonicTime now) const;
  void Failed(int task, MonotonicTime now);
  void Succeeded(int task, const ServerCall& call, MonotonicTime now);

  // ---- What tasks are brought to
  void SetWorkers(std::map<int, uint64_t> workers);
  // ... the one among them that is new: nothing is leased to it before the tasks know of it.
  void AddWorker(int worker) {
    worker_since_[worker] = workers_version_;
    ++changes_;
  }
  void RemoveWorker(int worker) { worker_since_.erase(worker); }
  // `news`: WorkTable's, that the record tells.
  void SetRecord(std::string record, uint64_t news = 0);
  bool IsRecorded(uint64_t news) const { return news <= news_; }
  // ... and some task has the record.
  bool IsKept(uint64_t news) const { return IsRecorded(news) && SomeHaveRecord(news_record_); }
  uint64_t record_version() const { return record_version_; }
  // Some task, or each that is there, has the record of that version, or a later one.
  bool SomeHaveRecord(uint64_t version) const;
  bool AllHaveRecord(uint64_t version) const;
  // A view of the placements of now; `ledger` null: no shard was ever restored. SetRecord follows.
  void NewView(uint64_t number, std::string ticket, const ShardLedger* ledger);
  const proto::View& view() const { return view_; }        // number 0: none yet
  uint64_t current_view() const { return current_view_; }  // the last one that all got
  bool all_have_view() const { return current_view_ == view_.number(); }
  // All shards are served, and every task knows by which one.
  bool Settled() const { return view_.number() != 0 && all_have_view() && Complete(placements_); }
  // Why nothing is leased to the worker yet; "": it may be.
  std::string WhyShut(int worker) const;

  // ---- Shards
  const Placements& placements() const { return placements_; }
  // Of the shards that no task serves and that go back to an older state: what to fill,
  // (shard, task), primaries before backups. From then on nobody is waited for who holds them.
  std::vector<std::pair<int, int>> TakeUnserved(MonotonicTime now);
  // These were filled.
  void Restored(const std::vector<std::pair<int, int>>& targets);
  // The highest lease whose push tasks had seen when they were created.
  int64_t newest_lease() const;
  // The newest record that a task kept of a chief before this one, while tasks hold shards of that
  // run; a DataError for one that no chief wrote.
  absl::StatusOr<std::optional<ChiefRecord>> NewestRecord() const;
  // What of its placements the tasks that are there hold still.
  Placements HeldOf(const ChiefRecord& record) const;
  // Of each shard that no task serves, for the record.
  std::vector<Holders> awaited() const;
  void Adopt(const ChiefRecord& record);

  // By variable, as the tasks reported last.
  std::map<int, TableStatistics> tables() const;
  // Rises with whatever a call of a worker may wait for.
  uint64_t changes() const { return changes_; }

 private:
  // How far a task has been brought: versions; 0: not at all.
  struct Server {
    AdmittedMember member;     // incarnation 0: none
    bool created = false;      // knows the layout
    proto::CreateReply holds;  // what it held then
    uint64_t workers = 0, record = 0, view = 0;
    MonotonicTime next_beat, next_try;
    rpc::Backoff backoff;
    std::string trouble;  // as logged last
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
  // By shard. Of the last view that workers may know: what a later one has changed, nothing was
  // acknowledged in.
  std::vector<Holders> holders_;
  std::vector<MonotonicTime> unserved_since_;
  std::map<int, uint64_t> workers_;
  uint64_t workers_version_ = 0;
  std::map<int, uint64_t> worker_since_;  // the version of workers_ that named it first
  std::string record_;
  uint64_t record_version_ = 0;
  uint64_t news_ = 0, news_record_ = 0;  // the latest, and the first record that tells of it
  proto::View view_;
  uint64_t view_record_ = 0;  // the first version of the record that has view_
  uint64_t current_view_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace muster
