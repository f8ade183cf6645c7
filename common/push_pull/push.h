// The data and the result of a push of gradients to one chunk. A chunk is a part of the variables
// on a parameter server (layout.h). Three processes use these types: the worker, the chunk's
// primary, and the backup. The primary is the server that serves the chunk to workers. The backup
// is the server with the second copy.
#pragma once

#include <cstdint>
#include <span>

namespace muster::push_pull {

// Identifies a push.
struct PushKey {
  int worker = 0;            // The index of the worker.
  uint64_t incarnation = 0;  // A random number that identifies the worker's process.
  uint64_t sequence = 0;     // The number of the push in this process, from 1.
  int64_t lease = 0;         // The number of the chief's assignment of the batch to the worker.
};

// The data of a push for one chunk.
struct ChunkPush {
  PushKey key;
  // The number of updates that the chunk had when the worker pulled the chunk's parameters. The
  // gradient was computed from these parameters.
  int64_t pulled = 0;
  double learning_rate = 0;
  // For rows of an embedding table: the output of PackRows, with distinct keys.
  std::span<const float> gradient;
  // True if the chunk has values that are never negative, such as running variances. `gradient` is
  // then a change of these values, and `learning_rate` is a weight in [0, 1]. The server subtracts
  // the weighted change, but at most the fraction `learning_rate` of the current value. The values
  // therefore never become negative, even if the worker pulled them long before the push.
  bool floor = false;
  // Has an effect only if the server has a backup. True: ShardStore::Apply does not wait for the
  // backup, and the caller must call ShardStore::Await. False: Apply waits for the backup.
  bool ahead = false;
  // True if the server writes the new parameters to memory that it shares with the worker.
  bool shared = false;
};

// The result of a push.
struct Pushed {
  bool applied = false;  // False: the server refused the push, or had applied it before.
  int64_t updates = 0;   // The chunk's number of updates after the push.
  // The number of the chunk's updates by other workers between ChunkPush::pulled and this push.
  int64_t staleness = 0;
  // True if the gradient contains an infinity or a NaN. The server has not changed the chunk.
  bool refused = false;
};

}  // namespace muster::push_pull
