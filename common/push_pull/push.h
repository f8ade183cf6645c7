// How a push is named, and what comes back of it.
#pragma once

#include <cstdint>

namespace muster {

// Who pushes what: the n-th push of one process.
struct PushKey {
  int worker = 0;            // index of the task
  uint64_t incarnation = 0;  // of its process
  uint64_t sequence = 0;     // from 1
};

struct Pushed {
  bool applied = false;   // false: it was in the chunk before, or is refused
  int64_t updates = 0;    // of the chunk, after it
  int64_t staleness = 0;  // updates of others since the pull that it was computed from
  bool refused = false;   // a number in it is not finite: it has changed nothing
};

}  // namespace muster
