// The server's end of one worker's data connection to one shard: takes requests, applies pushes as
// they arrive, answers pulls.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/data_connection.h"
#include "muster/status.h"
#include "ps/chief_contact.h"
#include "ps/dense_store.h"

namespace muster::ps {

struct ServeOptions {
  uint64_t layout = 0;                        // digest: a worker with another one is refused
  std::vector<Chunk> chunks;                  // of the shard
  std::map<int, int64_t> widths = {};         // of tables, by Chunk::table
  bool share_memory = true;                   // with a worker that offers it
  Duration idle = std::chrono::minutes(10);   // between two requests
  Duration stall = std::chrono::seconds(30);  // within one
  // Pushes wait for it, as long as `new_view`. Null: for nothing.
  ChiefContact* chief = nullptr;
  std::atomic<int64_t>* newest_lease = nullptr;  // the highest one of a push is noted there
  Duration new_view = std::chrono::minutes(2);
};

// Of the shard and in the view that the connection was opened for: its `to` and generation.
// Serves until the worker closes the connection (OK), something is wrong (the worker gets the
// reason, where that is possible), or `abort`. Blocks: for a thread of its own. At most one request
// is in memory.
absl::Status Serve(transport::DataConnection& connection, DenseStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort);

}  // namespace muster::ps
