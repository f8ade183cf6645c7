// The server's side of one worker's data connection to one shard. It applies the worker's pushes as
// they arrive, and answers its pulls.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/counted_stream.h"
#include "common/transport/data_connection.h"
#include "muster/status.h"
#include "ps/chief_contact.h"
#include "ps/shard_store.h"

namespace muster::ps {

struct ServeOptions {
  uint64_t layout = 0;  // Digest of the layout. A worker with another layout is refused.
  std::vector<push_pull::Chunk> chunks;       // The chunks of the shard.
  std::map<int, int64_t> widths = {};         // Row widths of tables, keyed by Chunk::table.
  bool share_memory = true;                   // Uses shared memory if a worker offers it.
  Duration idle = std::chrono::minutes(10);   // Limit between two requests.
  Duration stall = std::chrono::seconds(30);  // Limit within one request.
  // A push waits while the chief is silent, for at most `new_view`. Null: pushes do not wait.
  ChiefContact* chief = nullptr;
  std::atomic<int64_t>* newest_lease = nullptr;  // Raised to the lease of each push. May be null.
  Duration new_view = std::chrono::minutes(2);
  transport::Traffic* shared_memory = nullptr;  // Counts bytes in shared memory. May be null.
};

// Serves one connection. In connection.info(), `to` is the shard and `generation` is the view.
// Blocks until the worker closes the connection, then returns OK. Returns an error if the worker's
// frames or the pushes are wrong, and tells the worker if possible. Returns an error after `abort`.
// Needs its own thread. Holds at most one request in memory.
absl::Status Serve(transport::DataConnection& connection, ShardStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort);

}  // namespace muster::ps
