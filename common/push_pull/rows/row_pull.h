// Rows of embedding tables in transfer between a worker and parameter servers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::ps {

struct RowFetch;

struct RowPull {
  int shard = 0, chunk = 0;
  std::span<const uint64_t> keys;  // All of this chunk.
  std::span<float> rows;           // Shape [keys][width].
  // From the answer: the number of updates of the chunk by other workers so far. All pulls of a
  // client count from the same start. A push computed from these rows carries this number.
  int64_t others = 0;
  RowFetch* fetch = nullptr;  // Set by the client.
};

// Pulls that are launched together.
struct RowFetch {
  std::vector<uint64_t> keys;  // Storage that the pulls may point into.
  std::vector<float> rows;
  std::vector<RowPull> pulls;
  size_t open = 0;  // Used by the client under its lock: the number of unanswered pulls.
};

// Gradients of the rows of one chunk.
struct RowPush {
  int shard = 0, chunk = 0;
  std::span<const float> packed;  // Output of PackRows with distinct keys. May hold no keys.
  int64_t others = 0;             // RowPull::others of the pull. Staleness is counted from there.
};

}  // namespace muster::ps
