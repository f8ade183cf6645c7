// These pure functions decide which ps task is the primary and which is the backup of each shard
// after a loss, a return or a restore. A view is such an assignment for all shards, with a number.
// There are as many shards as ps tasks. The homes of shard s are task s and, with two copies, the
// next task.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace muster::chief {

struct ShardPlacement {
  // -1: no task serves the shard until it is restored.
  int primary = -1;
  int backup = -1;       // -1: none.
  bool in_sync = false;  // The backup has all acknowledged updates.
  friend bool operator==(const ShardPlacement&, const ShardPlacement&) = default;
};
using Placements = std::vector<ShardPlacement>;  // Indexed by shard.

// The processes that have all acknowledged updates of a shard and may still run, as incarnations by
// task. A process without a connection to the chief is included, because it keeps its state.
using Holders = std::map<int, uint64_t>;

// Handles the loss of a task. Backups in sync replace it as primary. Shards without such a backup
// then have no primary.
void LoseServer(int task, Placements* placements);

// The tasks that are present and can store a shard.
using Present = std::set<int>;

// Returns whether a shard that no task has served since `since` rolls back to an older state. True
// if no process holds the shard any more, or if no holder has returned within `patience`.
bool MustRestore(const Holders& holders, MonotonicTime since, Duration patience, MonotonicTime now);

// Returns (shard, task) for each shard without a primary that has a present home. The task is the
// first present home, which restores the shard.
std::vector<std::pair<int, int>> ToRestore(const Placements& placements, const Present& present,
                                           int replicas);
// Makes `task` the primary of a shard. The task was filled with the shard's state or has returned
// with it.
void Restored(int shard, int task, Placements* placements);

// Assigns a backup, which is not in sync yet, to each shard without one. Returns true if something
// changed.
bool AddBackups(const Present& present, int replicas, Placements* placements);

// Called when a primary reports that its backup is in sync. Returns true if this is new.
bool Synced(int primary, int shard, Placements* placements);

// Called when a primary reports that its backup does not answer. The primary continues without the
// backup until the backup is in sync again. Returns true if the shard has a backup, even one that
// is not known to be in sync. The primary may know this before the chief does.
bool CanDropBackup(int primary, int shard, Placements* placements);

// Returns the placements with which a restarted chief begins. These are the placements of `record`,
// without tasks that no longer hold the shard. `serving` is indexed by task: the shards of which
// the task has the complete state.
Placements AdoptPlacements(const Placements& record, const std::vector<std::set<int>>& serving);

bool Complete(const Placements& placements);         // True if every shard has a primary.
std::string Describe(const Placements& placements);  // "shard 0 on ps 0, backup ps 1; ...".
std::string Describe(const Holders& holders);        // "ps 0 or ps 1".

}  // namespace muster::chief
