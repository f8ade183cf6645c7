// ShardLedger counts the updates of each shard in a parameter-server job, and how many of them were
// lost. A cut is a consistent copy of all shards between two steps. A shard that rolls back to a
// cut loses the updates since then. ShardLedger does no I/O. Used by one thread at a time.
//
// An accepted batch that pushed to two shards counts as one update of each. For each shard,
// accepted updates = held + lost at any time.
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

  // Counts an accepted batch. `views` is indexed by shard. An entry is the oldest view in which
  // part of the batch was acknowledged. It is 0 or absent if nothing was pushed to that shard.
  // Returns true if a shard has already lost the batch, because the shard rolled back before the
  // batch was reported.
  bool Accept(std::span<const uint64_t> views);
  // Records that a cut of the state after `step` begins. The cut has all updates accepted so far.
  // Shards cannot roll back to it before Keep. The next Cut replaces a cut without Keep.
  void Cut(int64_t step);
  // Called when the last cut was stored, so that a shard may roll back to it.
  void CommitCut();
  // Rolls the shard back to the state after `step`. All updates acknowledged later, in views up to
  // `view`, are lost. Returns their number. `steps` is the number of accepted steps. It serves for
  // an estimate if the ledger no longer knows the cut of `step`.
  int64_t Restore(int shard, int64_t step, uint64_t view, int64_t steps);

  // Returns the view of the shard's last Restore, 0 if none.
  uint64_t restored(int shard) const { return shards_[shard].restored; }
  int64_t lost() const;  // Updates that all shards have lost.

  Json ToRecord() const;
  // Throws Json's exceptions if `record` is malformed.
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
  std::vector<Kept> kept_;   // The first kept cut, then the newest ones.
  std::optional<Kept> cut_;  // A cut that is neither kept nor replaced yet.
};

}  // namespace muster::chief
