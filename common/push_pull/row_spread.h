// A batch's keys of an embedding table by the chunk that holds their rows, and what belongs to keys
// between the batch's order and the chunks'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/push_pull/layout.h"

namespace muster {

struct RowSpread {
  std::vector<uint32_t>
      begin;  // in `keys`: of chunk c of server s at [s * kRowChunks + c]; the end
  std::vector<uint32_t> order;  // by chunk: places in the batch
  std::vector<uint64_t> keys;   // likewise
  size_t chunks() const { return begin.size() - 1; }
  size_t count(size_t chunk) const { return begin[chunk + 1] - begin[chunk]; }
};

// At most 2^32 - 1 keys. Keeps the memory that `spread` has.
void SpreadRows(std::span<const uint64_t> keys, int servers, RowSpread* spread);

// [keys][width] by chunk to the batch's order.
void UnspreadRows(const RowSpread& spread, int64_t width, std::span<const float> by_chunk,
                  std::span<float> rows);
// PackRows of one chunk, from `rows` in the batch's order; returns the end of it.
float* PackChunk(const RowSpread& spread, size_t chunk, int64_t width, std::span<const float> rows,
                 float* packed);

}  // namespace muster
