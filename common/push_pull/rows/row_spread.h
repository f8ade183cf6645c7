// Groups the keys of a batch by the chunk of the embedding table that holds their rows. Also
// reorders row data between the batch's order and the order of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/push_pull/layout.h"

namespace muster::push_pull {

struct RowSpread {
  // begin[s * kRowChunks + c] is the first position in `keys` of chunk c of server s. The last
  // entry is the size of `keys`.
  std::vector<uint32_t> begin;
  std::vector<uint32_t> order;  // The position in the batch of each entry of `keys`.
  std::vector<uint64_t> keys;   // In the order of chunks.
  size_t chunks() const { return begin.size() - 1; }
  size_t count(size_t chunk) const { return begin[chunk + 1] - begin[chunk]; }
};

// REQUIRES: at most 2^32 - 1 keys. Reuses the memory of `spread`.
void SpreadRows(std::span<const uint64_t> keys, int servers, RowSpread* spread);

// Converts [keys][width] from chunk order to the batch's order.
void UnspreadRows(const RowSpread& spread, int64_t width, std::span<const float> by_chunk,
                  std::span<float> rows);
// Writes one chunk's keys and rows in the format of PackRows. `rows` has the batch's order. Returns
// the end of the output.
float* PackChunk(const RowSpread& spread, size_t chunk, int64_t width, std::span<const float> rows,
                 float* packed);

}  // namespace muster::push_pull
