// Pulls and pushes of rows of embedding tables, between a worker and parameter servers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::push_pull {

struct RowFetch;

struct RowPull {
  int shard = 0, chunk = 0;
  std::span<const uint64_t> keys;  // Keys whose rows are in this chunk.
  std::span<float> rows;           // The destination, [keys][width].
  // Set by the answer: the number of updates of the chunk that came from other clients. A push of
  // gradients of these rows has the same number in RowPush::others.
  int64_t others = 0;
  RowFetch* fetch = nullptr;  // Set by the client.
};

// Pulls that are launched together.
struct RowFetch {
  std::vector<uint64_t> keys;  // Storage for the spans of the pulls.
  std::vector<float> rows;     // Storage for the spans of the pulls.
  std::vector<RowPull> pulls;
  size_t open = 0;  // The number of unanswered pulls. Guarded by the client's lock.
};

// Gradients of the rows of one chunk.
struct RowPush {
  int shard = 0, chunk = 0;
  std::span<const float> packed;  // Output of PackRows with distinct keys, possibly none.
  int64_t others = 0;             // RowPull::others of the pull. The staleness counts from there.
};

}  // namespace muster::push_pull
