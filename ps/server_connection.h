// The server's side of one worker's data connection to one shard. It receives requests, applies
// pushes as they arrive and answers pulls.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/data_connection.h"
#include "muster/status.h"
#include "ps/chief_contact.h"
#include "ps/shard_store.h"

namespace muster::ps {

struct ServeOptions {
  uint64_t layout = 0;        // Digest of the layout. A worker with another one is refused.
  std::vector<Chunk> chunks;  // The chunks of the shard.
  std::map<int, int64_t> widths = {};         // Row widths of tables, by Chunk::table.
  bool share_memory = true;                   // Shares memory with a worker that offers it.
  Duration idle = std::chrono::minutes(10);   // Limit between two requests.
  Duration stall = std::chrono::seconds(30);  // Limit within one request.
  // Pushes wait for it, for at most `new_view`. Null: they do not wait.
  ChiefContact* chief = nullptr;
  std::atomic<int64_t>* newest_lease = nullptr;  // Receives the highest lease of all pushes.
  Duration new_view = std::chrono::minutes(2);
};

// Serves the shard and view for which the connection was opened, which are its `to` and generation.
// Returns OK when the worker closes the connection. Returns an error if something is wrong, which
// the worker receives if possible, or after `abort`. Blocks, so it needs its own thread. Holds at
// most one request in memory.
absl::Status Serve(transport::DataConnection& connection, ShardStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort);

}  // namespace muster::ps
