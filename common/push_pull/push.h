// A push as everything between a worker's client and a server's backup names it, and what comes
// back of it.
#pragma once

#include <cstdint>
#include <span>

namespace muster {

// Who pushes what: the n-th push of one process.
struct PushKey {
  int worker = 0;            // index of the task
  uint64_t incarnation = 0;  // of its process
  uint64_t sequence = 0;     // from 1
  int64_t lease = 0;         // whose batch it is
};

// What a push brings to one chunk.
struct ChunkPush {
  PushKey key;
  int64_t pulled = 0;  // the chunk's updates as of the pull that it was computed from
  double learning_rate = 0;
  std::span<const float> gradient;  // of rows: PackRows, keys all different
  // The values that the difference is of were not negative before and after it, as those of a
  // running variance: so it takes away no more than `learning_rate` (the worker's weight) of what
  // is there, and what is not negative stays so, however old the pull is that it was computed from.
  bool floor = false;
  // Where there is a backup, DenseStore::Apply does not wait until it has the push: Await does.
  bool ahead = false;
  // Parameters are answered into memory that another process reads.
  bool shared = false;
};

struct Pushed {
  bool applied = false;   // false: it was in the chunk before, or is refused
  int64_t updates = 0;    // of the chunk, after it
  int64_t staleness = 0;  // updates of others since the pull that it was computed from
  bool refused = false;   // a number in it is not finite: it has changed nothing
};

}  // namespace muster
