// Groups a batch's keys of an embedding table by the chunk that holds their rows. Also converts row
// data between the batch's order and the order of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/push_pull/layout.h"

namespace muster {

struct RowSpread {
  // Positions in `keys`. Chunk c of server s begins at [s * kRowChunks + c]. The last entry is the
  // end.
  std::vector<uint32_t> begin;
  std::vector<uint32_t> order;  // By chunk: positions in the batch.
  std::vector<uint64_t> keys;   // By chunk.
  size_t chunks() const { return begin.size() - 1; }
  size_t count(size_t chunk) const { return begin[chunk + 1] - begin[chunk]; }
};

// REQUIRES: at most 2^32 - 1 keys. Reuses the memory of `spread`.
void SpreadRows(std::span<const uint64_t> keys, int servers, RowSpread* spread);

// Converts [keys][width] from chunk order to the batch's order.
void UnspreadRows(const RowSpread& spread, int64_t width, std::span<const float> by_chunk,
                  std::span<float> rows);
// Writes PackRows of one chunk, from `rows` in the batch's order. Returns the end of the output.
float* PackChunk(const RowSpread& spread, size_t chunk, int64_t width, std::span<const float> rows,
                 float* packed);

}  // namespace muster
