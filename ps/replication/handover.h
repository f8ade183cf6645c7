// A Handover is the complete state of a chunk at one moment. A primary sends it to its backup.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ps/replication/replication_link.h"
#include "ps/shard_store.h"

namespace muster::ps {

class Handover {
 public:
  // Copies a dense chunk. Freezes the rows of a table's chunk: a row is copied only if it changes
  // while this object exists.
  static absl::StatusOr<Handover> Of(const ShardStore& store, int chunk);
  size_t bytes() const;
  // Sends the state in one or more frames. Returns the number of the last one. `limit` is passed to
  // ReplicaLink::Send. Returns Superseded once `closed` is true.
  absl::StatusOr<uint64_t> Send(ReplicaLink& link, Duration limit,
                                const std::atomic<bool>& closed) const;

 private:
  ReplicaFrame frame_;
  ChunkState state_;  // For a chunk of a table: the state without the rows.
  std::vector<push_pull::RowColumn> columns_;
  ShardStore::FrozenRows rows_;
};

}  // namespace muster::ps
