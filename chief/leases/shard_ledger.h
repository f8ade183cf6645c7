// Counts the updates that the accepted batches of a parameter-server job made in each shard, and
// the lost ones. A shard that goes back to a cut loses the updates since that cut. Pure
// bookkeeping, no I/O. Used by one thread at a time.
//
// Accepted updates are counted per shard: a batch that pushed to two shards is one update of each.
// For each shard, updates accepted = held + lost at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "muster/json.h"

namespace muster {

class ShardLedger {
 public:
  // For a run that begins or resumes after `step`.
  ShardLedger(int shards, int64_t step);

  // Counts an accepted batch. `views`, by shard: the oldest view in which part of the batch was
  // acknowledged; 0 or absent if nothing was pushed to that shard. Returns true if some shard has
  // already lost it, because the batch was reported after the shard went back.
  bool Accept(std::span<const uint64_t> views);
  // Records that the state after `step` is being cut, with everything accepted so far. Without
  // Keep, no shard can go back to the cut before.
  void Cut(int64_t step);
  // The last cut was stored, so a shard may go back to it.
  void Keep();
  // The shard goes back to the state after `step`; everything acknowledged in views up to `view` is
  // lost. `steps` are accepted by now. They give an estimate if the cut of `step` is no longer
  // known. Returns the number of updates that the shard loses.
  int64_t Restore(int shard, int64_t step, uint64_t view, int64_t steps);

  // The view of its last Restore, 0 if none.
  uint64_t restored(int shard) const { return shards_[shard].restored; }
  int64_t lost() const;  // Updates that all shards have lost.

  Json ToRecord() const;
  // May throw Json's exceptions.
  static ShardLedger FromRecord(int shards, const Json& record);

 private:
  struct Shard {
    int64_t held = 0, lost = 0;
    uint64_t restored = 0;
  };
  struct Kept {
    int64_t step = 0;
    std::vector<int64_t> held;  // Indexed by shard.
  };

  std::vector<Shard> shards_;
  std::vector<Kept> kept_;   // The first one, then the newest ones.
  std::optional<Kept> cut_;  // A cut that is neither kept nor replaced yet.
};

}  // namespace muster
