#include "common/push_pull/rows/row_spread.h"

#include <cstring>

#include "common/base/prefetch.h"

namespace muster::push_pull {
void SpreadRows(std::span<const uint64_t> keys, int servers, RowSpread* spread) {
  const size_t chunks = static_cast<size_t>(servers) * kRowChunks;
  std::vector<uint32_t> chunk_of(keys.size());
  spread->begin.assign(chunks + 1, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowPlace place = PlaceOfRow(keys[i], servers);
    chunk_of[i] = static_cast<uint32_t>(place.server * kRowChunks + place.chunk);
    ++spread->begin[chunk_of[i] + 1];
  }
  for (size_t c = 1; c <= chunks; ++c) spread->begin[c] += spread->begin[c - 1];
  std::vector<uint32_t> next(spread->begin.begin(), spread->begin.end() - 1);
  spread->order.resize(keys.size());
  spread->keys.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t to = next[chunk_of[i]]++;
    spread->order[to] = static_cast<uint32_t>(i);
    spread->keys[to] = keys[i];
  }
}

void UnspreadRows(const RowSpread& spread, int64_t width, std::span<const float> by_chunk,
                  std::span<float> rows) {
  for (size_t i = 0; i < spread.order.size(); ++i)
    CopyRow(by_chunk.data() + static_cast<int64_t>(i) * width, width,
            rows.data() + static_cast<int64_t>(spread.order[i]) * width);
}

float* PackChunk(const RowSpread& spread, size_t chunk, int64_t width, std::span<const float> rows,
                 float* packed) {
  const size_t begin = spread.begin[chunk], end = spread.begin[chunk + 1];
  // Copies bits without any float operation, which could change them.
  std::memcpy(packed, spread.keys.data() + begin, (end - begin) * sizeof(uint64_t));
  float* to = packed + 2 * (end - begin);
  for (size_t i = begin; i < end; ++i, to += width) {
    if (i + kPrefetchDistance < end)
      __builtin_prefetch(rows.data() +
                         static_cast<int64_t>(spread.order[i + kPrefetchDistance]) * width);
    CopyRow(rows.data() + static_cast<int64_t>(spread.order[i]) * width, width, to);
  }
  return to;
}

}  // namespace muster::push_pull
