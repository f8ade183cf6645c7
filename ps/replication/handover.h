// A Handover is the complete state of a chunk (see ps/shard_store.h) at one moment. The primary of
// a shard sends Handovers to the shard's backup (see replication.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ps/replication/replication_link.h"
#include "ps/shard_store.h"

namespace muster::ps {

class Handover {
 public:
  // Copies the state of a dense chunk. For a chunk of an embedding table, freezes the rows instead:
  // a row is copied only if it changes while the Handover exists.
  static absl::StatusOr<Handover> Of(const ShardStore& store, int chunk);
  // Returns the size of the state.
  size_t bytes() const;
  // Sends the state in one or more frames. Returns the number of the last frame on `link`. `limit`
  // is the argument of ReplicaLink::Send. Before each frame with rows, returns Superseded if
  // `closed` is true.
  absl::StatusOr<uint64_t> Send(ReplicaLink& link, Duration limit,
                                const std::atomic<bool>& closed) const;

 private:
  ReplicaFrame frame_;
  ChunkState state_;  // For a chunk of an embedding table: the state without the rows.
  std::vector<push_pull::RowColumn> columns_;
  ShardStore::FrozenRows rows_;
};

}  // namespace muster::ps
