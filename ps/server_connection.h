// The parameter server's side of one worker's data connection to one shard, the part of the
// variables that one server holds. A shard consists of chunks (ps/shard_store.h). Serve applies the
// worker's pushes (gradients) as they arrive, and answers its pulls (requests for parameters).
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
  // Digest of variables and layout. Serve refuses a worker with another digest.
  uint64_t layout = 0;
  std::vector<push_pull::Chunk> chunks;       // The chunks of the shard.
  std::map<int, int64_t> widths = {};         // Row widths of embedding tables, by Chunk::table.
  bool share_memory = true;                   // Use shared memory if a worker offers it.
  Duration idle = std::chrono::minutes(10);   // Maximum time between two requests.
  Duration stall = std::chrono::seconds(30);  // Maximum time without progress within a request.
  // If set, Serve applies a part of a push only while the chief's last message is recent
  // (ChiefContact::Await). If the message is too old, Serve waits for the chief's next message.
  // Serve returns an error if this wait takes longer than `new_view`, or if a new view begins. May
  // be null.
  ChiefContact* chief = nullptr;
  // Serve sets this to the highest lease for which a push has arrived at this process. A lease is
  // the number that the chief gave to the batch of the push. May be null.
  std::atomic<int64_t>* newest_lease = nullptr;
  Duration new_view = std::chrono::minutes(2);  // Maximum time of a wait for `chief`.
  transport::Traffic* shared_memory = nullptr;  // Counts bytes in shared memory. May be null.
};

// Serves one connection. In connection.info(), `to` is the shard and `generation` is the number of
// the view (see ps/shard_host.h). Blocks until the worker closes the connection, and then returns
// OK. If a frame or a push is invalid, tries to send an error to the worker, and returns the error.
// Also returns an error when `abort` is set. Needs its own thread. Holds a buffer of fixed size and
// at most one request in memory.
absl::Status Serve(transport::DataConnection& connection, ShardStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort);

}  // namespace muster::ps
