// A push as it is identified from the worker's client to the server's backup, and its result.
#pragma once

#include <cstdint>
#include <span>

namespace muster {

// The identity of a push: the n-th push of one process.
struct PushKey {
  int worker = 0;            // Index of the task.
  uint64_t incarnation = 0;  // The incarnation of its process.
  uint64_t sequence = 0;     // From 1.
  int64_t lease = 0;         // The lease of the batch.
};

// The data of a push for one chunk.
struct ChunkPush {
  PushKey key;
  // The chunk's number of updates at the pull from which the push was computed.
  int64_t pulled = 0;
  double learning_rate = 0;
  std::span<const float> gradient;  // For rows: the output of PackRows, with distinct keys.
  // The values were not negative before and after the difference, as those of a running variance.
  // The server then subtracts no more than the fraction `learning_rate` (the worker's weight) of
  // the current value. Values that are not negative stay so, however old the pull is.
  bool floor = false;
  // With a backup: ShardStore::Apply does not wait until the backup has the push. ShardStore::Await
  // does.
  bool ahead = false;
  // Parameters are returned in memory that another process reads.
  bool shared = false;
};

struct Pushed {
  bool applied = false;  // False: the chunk contained the push already, or the push is refused.
  int64_t updates = 0;   // The chunk's number of updates after the push.
  // Updates by other workers since the pull from which the push was computed.
  int64_t staleness = 0;
  bool refused = false;  // A value in it is not finite. The push has changed nothing.
};

}  // namespace muster
