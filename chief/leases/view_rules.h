// These pure functions decide which ps task is the primary of each shard, and which one is the
// backup. A shard is the part of the variables that one ps task holds. There are as many shards as
// ps tasks. The primary serves the workers, and the backup has a copy. A view is an assignment of
// primaries and backups to all shards. The chief makes a new view after the loss or the return of a
// ps task. Views are numbered.
//
// Each shard has one or two tasks that may store it. Task s may store shard s. If the job keeps two
// copies, task s + 1 (task 0 for the last shard) may store shard s too. The parameter `replicas` is
// the number of copies.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace muster::chief {

struct ShardPlacement {
  int primary = -1;      // -1: no task serves the shard until the shard is restored.
  int backup = -1;       // -1: none.
  bool in_sync = false;  // True if the backup has all acknowledged updates of the shard.
  friend bool operator==(const ShardPlacement&, const ShardPlacement&) = default;
};
using Placements = std::vector<ShardPlacement>;  // Indexed by shard.

// The processes that may still hold a copy of a shard with every acknowledged update. Maps each
// task to the incarnation (a random number) of its process. Includes processes that are not
// connected to the chief, because a disconnected process keeps its state.
using Holders = std::map<int, uint64_t>;

// Removes a lost task from `placements`. If the task was the primary of a shard, a backup in sync
// becomes the primary. A shard without a backup in sync has no primary afterwards.
void LoseServer(int task, Placements* placements);

// The ps tasks that are connected to the chief and can store a shard.
using Present = std::set<int>;

// Called for a shard that has had no serving task since the time `since`. Returns whether the chief
// must restore the shard from an older state. The chief must restore it if `holders` is empty, or
// if no holder has returned within `patience` after `since`.
bool MustRestore(const Holders& holders, MonotonicTime since, Duration patience, MonotonicTime now);

// For each shard that has no primary, returns a pair (shard, task) if a task that may store the
// shard is present. `task` is the first such task. The chief can restore the shard on `task`.
std::vector<std::pair<int, int>> ToRestore(const Placements& placements, const Present& present,
                                           int replicas);
// Makes `task` the primary of a shard. Called when the chief has sent a state of the shard to the
// task, or when the task has returned and still holds the shard.
void Restored(int shard, int task, Placements* placements);

// Assigns a backup to each shard that has only a primary, if a second task that may store the shard
// is present. A new backup is not in sync. Returns true if `placements` changed.
bool AddBackups(const Present& present, int replicas, Placements* placements);

// Called when the task `primary` reports that its backup of `shard` is in sync. Returns true if
// `placements` changed.
bool Synced(int primary, int shard, Placements* placements);

// Called when the task `primary` reports that its backup of `shard` does not answer. Returns true
// if the primary may continue without the backup: `primary` is the primary of the shard, and the
// shard has a backup. The backup then counts as not in sync, until Synced is called. The condition
// does not include in_sync: the primary learns earlier than the chief that a backup is in sync, so
// the backup may be in sync although ShardPlacement::in_sync is still false.
bool CanDropBackup(int primary, int shard, Placements* placements);

// Returns the placements with which a restarted chief begins. `record` has the placements of the
// earlier chief (ChiefRecord::placements). The result omits tasks that no longer hold the shard,
// and backups that are not in sync. `serving[t]` has the shards whose complete state task t holds.
Placements AdoptPlacements(const Placements& record, const std::vector<std::set<int>>& serving);

bool Complete(const Placements& placements);  // Returns true if every shard has a primary.
// Returns a text such as "shard 0 on ps 0, backup ps 1; ...".
std::string Describe(const Placements& placements);
std::string Describe(const Holders& holders);  // Returns a text such as "ps 0 or ps 1".

}  // namespace muster::chief
