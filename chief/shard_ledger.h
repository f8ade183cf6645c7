// What the accepted batches of a parameter-server job added to each shard, and what of it was lost:
// where a shard goes back to the state of a cut, it loses the batches since. Pure bookkeeping, no
// I/O; for one thread at a time.
//
// Accepted updates are counted per shard: a batch that pushed something to two shards is one update
// of each. At any time, for each shard, updates accepted = held + lost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "muster/json.h"

namespace muster {

class ShardLedger {
 public:
  // Of a run that begins, or goes on, after `step`.
  ShardLedger(int shards, int64_t step);

  // A batch was accepted. `views`, by shard: the oldest view in which a part of it was
  // acknowledged; 0, or not there: nothing was pushed to that shard. True: some shard has lost it
  // already, for it was told after the shard had gone back.
  bool Accept(std::span<const uint64_t> views);
  // The state after `step` is being cut: all that was accepted is in it. The cut before is nothing
  // that a shard may go back to, unless Keep said so.
  void Cut(int64_t step);
  // What was cut last is: a shard may go back to it.
  void Keep();
  // The shard goes back to what it was after `step`, and what was acknowledged in views up to
  // `view` is gone. `steps` are accepted by now; they tell, as well as they can, where that step is
  // not known (any more). How many updates it loses.
  int64_t Restore(int shard, int64_t step, uint64_t view, int64_t steps);

  uint64_t restored(int shard) const { return shards_[shard].restored; }  // that view; 0: never
  int64_t lost() const;                                                   // by all shards

  Json ToRecord() const;
  // May throw what Json does.
  static ShardLedger FromRecord(int shards, const Json& record);

 private:
  struct Shard {
    int64_t held = 0, lost = 0;
    uint64_t restored = 0;
  };
  struct Kept {
    int64_t step = 0;
    std::vector<int64_t> held;  // by shard
  };

  std::vector<Shard> shards_;
  std::vector<Kept> kept_;   // the beginning, then the newest ones
  std::optional<Kept> cut_;  // of which is not known what becomes of it
};

}  // namespace muster
