// ShardLedger counts the updates of each shard in a parameter-server job, and the lost updates
// among them. A shard is the part of the variables that one server holds. A cut is a consistent
// copy of all shards between two steps. If the servers lose a shard, the chief restores the shard
// from a cut. The shard then loses all updates that it received after the cut. ShardLedger does no
// I/O. Used by one thread at a time.
//
// The chief accepts each completed batch once. A batch that pushed gradients to two shards is one
// update of each of the two shards. At any time, the accepted updates of a shard are the updates
// that it holds and the updates that it has lost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "muster/json.h"

namespace muster::chief {

class ShardLedger {
 public:
  // Makes the ledger of a run that begins or resumes after `step`.
  ShardLedger(int shards, int64_t step);

  // Counts an accepted batch. A view is a numbered assignment of shards to servers (view_rules.h).
  // `views` is indexed by shard. An entry is the number of the oldest view in which a server
  // acknowledged a push of this batch to the shard. The entry is 0 or absent if the batch pushed
  // nothing to the shard. Returns true if a shard has lost the batch, because the shard was
  // restored after the push and before this call.
  bool Accept(std::span<const uint64_t> views);
  // Called when a cut begins. `step` is the last step in the cut. The cut contains all updates
  // accepted before this call. Restore can use the cut after CommitCut. If CommitCut is not called,
  // the next call of Cut discards this cut. Until then, ToRecord includes the uncommitted cut.
  void Cut(int64_t step);
  // Called when the content of the last cut is stored, so that shards can be restored from it.
  void CommitCut();
  // Called when a shard is restored from the cut of `step`. Counts the shard's updates after this
  // cut as lost, and returns their number. Updates that were acknowledged in views up to `view`,
  // but are accepted after this call, count as lost too. `steps` is the number of completed steps
  // of the run. If the ledger does not know the cut of `step`, it estimates the number of lost
  // updates from `steps`.
  int64_t Restore(int shard, int64_t step, uint64_t view, int64_t steps);

  // Returns the argument `view` of the shard's last Restore, 0 if there was none.
  uint64_t restored(int shard) const { return shards_[shard].restored; }
  int64_t lost() const;  // The number of lost updates, summed over all shards.

  Json ToRecord() const;
  // Throws Json's exceptions if `record` is malformed.
  static ShardLedger FromRecord(int shards, const Json& record);

 private:
  struct Shard {
    int64_t held = 0, lost = 0;
    uint64_t restored = 0;
  };
  // A cut, with the number of updates that each shard held when the cut began.
  struct Kept {
    int64_t step = 0;
    std::vector<int64_t> held;  // Indexed by shard.
  };

  std::vector<Shard> shards_;
  std::vector<Kept> kept_;   // The first committed cut, followed by the newest ones.
  std::optional<Kept> cut_;  // The last cut, until CommitCut is called.
};

}  // namespace muster::chief
