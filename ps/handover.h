// The whole state of a chunk on its way to a backup, as it was at one moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ps/dense_store.h"
#include "ps/replication_link.h"

namespace muster::ps {

class Handover {
 public:
  // Rows are frozen, not copied: those that change until it has left are copied before.
  static absl::StatusOr<Handover> Of(const DenseStore& store, int chunk);
  size_t bytes() const;
  // The number of the last of its frames.
  absl::StatusOr<uint64_t> Send(ReplicaLink& link, Duration limit,
                                const std::atomic<bool>& closed) const;

 private:
  ReplicaFrame frame_;
  ChunkState state_;  // of a chunk of a table without the rows
  std::vector<RowColumn> columns_;
  DenseStore::FrozenRows rows_;
};

}  // namespace muster::ps
