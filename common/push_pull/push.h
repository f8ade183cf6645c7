// The data and the result of a push. The worker's client, the primary and the backup share these
// types.
#pragma once

#include <cstdint>
#include <span>

namespace muster::push_pull {

// Identifies a push by its process and its number in that process.
struct PushKey {
  int worker = 0;            // Index of the task.
  uint64_t incarnation = 0;  // The incarnation of the worker's process.
  uint64_t sequence = 0;     // The number of the push, from 1.
  int64_t lease = 0;         // The lease of the batch.
};

// The data of a push for one chunk.
struct ChunkPush {
  PushKey key;
  // The chunk's number of updates when the worker pulled the parameters from which it computed this
  // gradient.
  int64_t pulled = 0;
  double learning_rate = 0;
  std::span<const float> gradient;  // For rows: the output of PackRows, with distinct keys.
  // The gradient is a change of values that are never negative, such as a running variance. The
  // server subtracts at most the fraction `learning_rate` (the worker's weight) of the current
  // value. The values therefore stay at least 0, however old the pull is.
  bool floor = false;
  // Has an effect only with a backup. If true, ShardStore::Apply returns before the backup has the
  // push, and ShardStore::Await waits for the backup.
  bool ahead = false;
  // The store writes the resulting parameters to memory that another process reads.
  bool shared = false;
};

struct Pushed {
  bool applied = false;  // False: the chunk already contained the push, or the push was refused.
  int64_t updates = 0;   // The chunk's number of updates after the push.
  // The number of updates by other workers since the worker pulled the parameters.
  int64_t staleness = 0;
  bool refused = false;  // The push contains an infinity or a NaN and has changed nothing.
};

}  // namespace muster::push_pull
