// Decides which ps task is primary and backup of each shard after a loss, a return or a restore.
// Pure functions. There are as many shards as ps tasks. Shard s belongs on task s, and with two
// copies also on the next task.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace muster {

struct ShardPlacement {
  int primary = -1;      // -1: no task has its state until it is restored.
  int backup = -1;       // -1: none.
  bool in_sync = false;  // The backup has everything that was acknowledged.
  friend bool operator==(const ShardPlacement&, const ShardPlacement&) = default;
};
using Placements = std::vector<ShardPlacement>;  // Indexed by shard.

// The processes that have everything acknowledged of a shard and are not known to have ended:
// incarnations, by task. A process that the chief has lost contact with keeps its state.
using Holders = std::map<int, uint64_t>;

// Handles the loss of a task. Backups in sync replace it. Shards of which it held the only copy
// then have no primary.
void LoseServer(int task, Placements* placements);

// The tasks that are present and can take a shard.
using Present = std::set<int>;

// Returns whether a shard goes back to an older state. `since`: no task has served it since then.
// True if no process holds it any more, or if none has returned within `patience`.
bool GoesBack(const Holders& holders, MonotonicTime since, Duration patience, MonotonicTime now);

// Returns the shards that no task has and that some task may restore, as (shard, task). The task is
// the first present one of the shard's homes.
std::vector<std::pair<int, int>> ToRestore(const Placements& placements, const Present& present,
                                           int replicas);
// `task` has the shard: it was filled, or it has returned with the state.
void Restored(int shard, int task, Placements* placements);

// Assigns backups, not in sync, to shards that have none. Returns true if something changed.
bool AddBackups(const Present& present, int replicas, Placements* placements);

// A primary reports that its backup is up to date. Returns true if that was not known.
bool Synced(int primary, int shard, Placements* placements);

// A primary reports that its backup does not answer. The primary continues without it until it is
// up to date again. Returns true if the shard has a backup. The backup need not be known to be in
// sync, because the primary may know that earlier.
bool GoOnWithoutBackup(int primary, int shard, Placements* placements);

// Returns the placements with which a restarted chief begins: the part of `record` that the present
// tasks still hold. `serving`: by task, the shards whose complete state it has.
Placements AdoptPlacements(const Placements& record, const std::vector<std::set<int>>& serving);

bool Complete(const Placements& placements);         // Every shard has a primary.
std::string Describe(const Placements& placements);  // "shard 0 on ps 0, backup ps 1; ...".
std::string Describe(const Holders& holders);        // "ps 0 or ps 1".

}  // namespace muster
