// ShardAssignment records which ps task has which shard. A shard is the part of the variables that
// one ps task holds. ShardAssignment has the placements of the next view: the primary and the
// backup of each shard. For each shard, it also has the processes whose copy has every acknowledged
// update. chief/leases/view_rules.h has the rules for placements.
//
// ShardServers (shard_servers.h) owns the ShardAssignment and passes the processes of the tasks to
// it. If a call changes the placements so that a new view is needed, the caller of ShardServers
// makes the new view. ShardAssignment does no I/O. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/view_rules.h"
#include "common/base/clock.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

// The processes of the ps tasks at one moment.
struct ServerProcesses {
  // Indexed by task. An incarnation is a random number that identifies a process. 0: the task has
  // no process.
  std::vector<uint64_t> incarnations;
  Present present;  // The tasks whose process can store a shard.
};

class ShardAssignment {
 public:
  // There are as many shards as tasks. At first no task serves any shard.
  explicit ShardAssignment(int tasks)
      : placements_(tasks), holders_(tasks), unserved_since_(tasks) {}
  // See ShardServers::SetCopies and ShardServers::SetPatience.
  void SetCopies(int64_t copies) { copies_ = static_cast<int>(copies); }
  void SetPatience(Duration heartbeat, Duration rejoin) {
    heartbeat_ = heartbeat;
    rejoin_ = rejoin;
  }

  // ---- Processes
  //
  // Called when the process `incarnation` has become the process of the task. The task's other
  // processes have ended, or the chief refuses them for good.
  void Admit(int task, uint64_t incarnation);
  // Called when the process has certainly ended, so its state is gone.
  void Ended(int task, uint64_t incarnation);
  // Called when the chief has lost the process of the task. Backups in sync take over the shards of
  // the task. A shard without such a backup is unserved from `now` on. `now` is nullopt before the
  // first view: no task serves a shard yet, and there is nothing to log. `why` is for the log.
  void Lose(int task, std::optional<MonotonicTime> now, const std::string& why);
  // Called when a task has joined with a process that holds the shards `serving`. Returns true if
  // the placements have changed.
  bool Join(int task, const std::set<int>& serving, const ServerProcesses& processes);
  // kNone: nothing has changed. kRecord: something has changed that the chief's record must
  // include. kView: the placements have changed, so a new view is needed.
  enum class Change { kNone, kRecord, kView };
  // Applies a task's report about the shards of the newest view. REQUIRES: `reply` is about the
  // newest view.
  Change HandleBeat(int task, const proto::BeatReply& reply, const ServerProcesses& processes);
  // Called when all present tasks have the newest view. From now on, workers may know this view,
  // and only the processes of this view have all updates.
  void UseView(const ServerProcesses& processes);

  // ---- Shards
  const Placements& placements() const { return placements_; }
  // See ShardServers::TakeUnserved, ShardServers::Restored and ShardServers::awaited.
  std::vector<std::pair<int, int>> TakeUnserved(const Present& present, MonotonicTime now);
  void Restored(const std::vector<std::pair<int, int>>& targets, const ServerProcesses& processes);
  std::vector<Holders> awaited() const;
  // Continues with these placements of an earlier chief, and adds missing backups.
  void Adopt(Placements placements, const ServerProcesses& processes);

 private:
  void SetHolders(int shard, const ServerProcesses& processes);
  bool TakeHeld(int task, const std::set<int>& serving);
  bool DropBackups(int task, const proto::BeatReply& reply);
  int size() const { return static_cast<int>(placements_.size()); }

  int copies_ = 1;
  Duration heartbeat_ = std::chrono::seconds(60), rejoin_ = std::chrono::minutes(10);
  Placements placements_;
  // Indexed by shard: the processes whose copy of the shard includes every update that was
  // acknowledged to a worker. These processes are the primary, and the backup if it is in sync, in
  // the last view that workers may know. (No update was acknowledged in a later view.)
  std::vector<Holders> holders_;
  std::vector<MonotonicTime> unserved_since_;  // Indexed by shard.
};

}  // namespace muster::chief
