// Pulls and pushes of rows of embedding tables, between a worker and the parameter servers. A shard
// is the part of all variables that one server holds. A chunk is a part of a shard (layout.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::push_pull {

struct RowFetch;

struct RowPull {
  int shard = 0, chunk = 0;
  std::span<const uint64_t> keys;  // The keys. Their rows are in this chunk.
  std::span<float> rows;           // The destination, in the shape [keys][width].
  // The number of updates of the chunk by other workers. The client sets this field when the answer
  // arrives. The caller copies this field to RowPush::others to push gradients of the rows.
  int64_t others = 0;
  RowFetch* fetch = nullptr;  // The RowFetch that has this pull. Set by the client.
};

// Pulls that start together and are awaited together.
struct RowFetch {
  std::vector<uint64_t> keys;  // RowPull::keys point into this vector.
  std::vector<float> rows;     // RowPull::rows point into this vector.
  std::vector<RowPull> pulls;
  size_t open = 0;  // The number of unanswered pulls. Guarded by the client's lock.
};

// Gradients of the rows of one chunk.
struct RowPush {
  int shard = 0, chunk = 0;
  std::span<const float> packed;  // The output of PackRows, with distinct keys. May have no keys.
  // RowPull::others of the pull of these rows. Updates by other workers after the pull count as
  // staleness (Pushed::staleness in push.h).
  int64_t others = 0;
};

}  // namespace muster::push_pull
