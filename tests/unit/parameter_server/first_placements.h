// Returns the placements of shards when all ps tasks are present and all backups are in sync.
#pragma once

#include "chief/leases/view_rules.h"

namespace muster::chief {

inline Placements FirstPlacements(int servers, int copies) {
  Placements placements(servers);
  for (int shard = 0; shard < servers; ++shard) {
    placements[shard].primary = shard;
    if (copies > 1 && servers > 1) placements[shard] = {shard, (shard + 1) % servers, true};
  }
  return placements;
}

}  // namespace muster::chief
