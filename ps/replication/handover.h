// The complete state of a chunk at one moment, to be sent to a backup.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ps/replication/replication_link.h"
#include "ps/shard_store.h"

namespace muster::ps {

class Handover {
 public:
  // Rows are frozen, not copied. A row that changes before it was sent is copied first.
  static absl::StatusOr<Handover> Of(const ShardStore& store, int chunk);
  size_t bytes() const;
  // Returns the number of the last frame.
  absl::StatusOr<uint64_t> Send(ReplicaLink& link, Duration limit,
                                const std::atomic<bool>& closed) const;

 private:
  ReplicaFrame frame_;
  ChunkState state_;  // For a chunk of a table: the state without the rows.
  std::vector<RowColumn> columns_;
  ShardStore::FrozenRows rows_;
};

}  // namespace muster::ps
