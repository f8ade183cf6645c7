// A worker's end of its data connection to one parameter server: fused push and pull of many
// chunks, both directions of the connection busy at once.
#pragma once

#include <span>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/push_pull/push.h"
#include "common/transport/data_connection.h"

namespace muster::ps {

// One chunk's turn. Gradient and parameters are the caller's memory and travel without a copy.
struct ChunkTransfer {
  int chunk = 0;
  std::span<const float> gradient;  // empty: nothing is pushed
  std::span<float> parameters;      // empty: nothing is pulled
  int64_t pulled = 0;               // in: the chunk's updates as the last pull told them
  // Out, once `done`: a transfer that was cut off is resumed with those that are not, under the
  // same sequence.
  bool done = false;
  Pushed result;
};

struct TransferOptions {
  uint64_t sequence = 0;  // of the push
  double learning_rate = 0;
  bool checksum = false;
};

// Says who this worker is. Once, first.
absl::Status OpenConnection(transport::DataConnection& connection, int worker, uint64_t incarnation,
                            uint64_t layout, MonotonicTime deadline,
                            const transport::AbortSignal& abort);

// Transfers those that are not `done`, in their order. An error of the server's comes back with its
// sentence; after any error the connection is of no use any more.
absl::Status PushPull(transport::DataConnection& connection, const TransferOptions& options,
                      std::span<ChunkTransfer> transfers, MonotonicTime deadline,
                      const transport::AbortSignal& abort);

}  // namespace muster::ps
