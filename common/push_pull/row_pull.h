// Rows of embedding tables on their way between a worker and parameter servers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::ps {

struct RowFetch;

struct RowPull {
  int shard = 0, chunk = 0;
  std::span<const uint64_t> keys;  // all of this chunk
  std::span<float> rows;           // [keys][width]
  // Of the answer: updates of the chunk by others until then, counted from one beginning for all
  // pulls of a client. What was computed from these rows is pushed with it.
  int64_t others = 0;
  RowFetch* fetch = nullptr;  // the client's own
};

// Pulls that are launched together.
struct RowFetch {
  std::vector<uint64_t> keys;  // what the pulls speak of may lie here
  std::vector<float> rows;
  std::vector<RowPull> pulls;
  size_t open = 0;  // the client's own, under its lock: pulls that were not answered
};

// Gradients of one chunk's rows.
struct RowPush {
  int shard = 0, chunk = 0;
  std::span<const float> packed;  // PackRows of different keys, which may be none
  int64_t others = 0;             // RowPull's: the staleness counts from there
};

}  // namespace muster::ps
