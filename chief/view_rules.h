// Which ps task is primary and backup of which shard, after a loss, a return, a restore: pure
// functions. There are as many shards as ps tasks; shard s is at home on task s, and with two
// replicas also on the next one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace muster {

struct ShardPlacement {
  int primary = -1;      // -1: nobody has its state, until it is restored
  int backup = -1;       // -1: none
  bool in_sync = false;  // the backup has whatever was acknowledged
  friend bool operator==(const ShardPlacement&, const ShardPlacement&) = default;
};
using Placements = std::vector<ShardPlacement>;  // by shard

// The processes that have whatever was acknowledged of a shard and are not known to have ended:
// incarnations, by task. A process that the chief has lost touch with keeps what it holds.
using Holders = std::map<int, uint64_t>;

// A task is gone: its backups in sync take its place. Shards of which it held the only copy have
// none.
void LoseServer(int task, Placements* placements);

// Which tasks are there, and can take a shard.
using Present = std::set<int>;

// Whether a shard that no task has served since then goes back to an older state: nobody is left
// who holds it, or none of them has come back within `patience`.
bool GoesBack(const Holders& holders, MonotonicTime since, Duration patience, MonotonicTime now);

// Shards that nobody has and somebody may restore: (shard, task), the first of its homes that is
// there.
std::vector<std::pair<int, int>> ToRestore(const Placements& placements, const Present& present,
                                           int replicas);
// `task` has the shard: it was filled with it, or has come back with it.
void Restored(int shard, int task, Placements* placements);

// Gives shards without a backup one, not in sync. True: something changed.
bool AddBackups(const Present& present, int replicas, Placements* placements);

// A primary says that its backup is up to date. True: it was not known.
bool Synced(int primary, int shard, Placements* placements);

// Its backup does not answer: until it is up to date again the primary goes on without it. True: it
// has one, which may count there before that is known here.
bool GoOnWithoutBackup(int primary, int shard, Placements* placements);

// Where a restarted chief begins: of what its record says, that which the tasks that are there
// still hold. `serving`: by task, the shards whose whole state it has.
Placements AdoptPlacements(const Placements& record, const std::vector<std::set<int>>& serving);

bool Complete(const Placements& placements);         // every shard has a primary
std::string Describe(const Placements& placements);  // "shard 0 on ps 0, backup ps 1; ..."
std::string Describe(const Holders& holders);        // "ps 0 or ps 1"

}  // namespace muster
