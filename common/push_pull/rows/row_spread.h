// Groups the keys of a batch by the chunk that holds their rows. An embedding table has kRowChunks
// chunks on each parameter server (layout.h). The functions also convert rows between batch order
// and chunk order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/push_pull/layout.h"

namespace muster::push_pull {

struct RowSpread {
  // The keys of chunk c of server s start in `keys` at begin[s * kRowChunks + c]. The last entry of
  // `begin` is the size of `keys`.
  std::vector<uint32_t> begin;
  std::vector<uint32_t> order;  // order[i] is the position of keys[i] in the batch.
  std::vector<uint64_t> keys;   // The keys in the order of the chunks.
  size_t chunks() const { return begin.size() - 1; }
  size_t count(size_t chunk) const { return begin[chunk + 1] - begin[chunk]; }
};

// Copies the bits of a row. Rows are short, so a call of memcpy takes longer than the copy. The
// compiler replaces each memcpy here by instructions, because the sizes are constants.
inline void CopyRow(const float* from, int64_t width, float* to) {
  for (; width >= 16; width -= 16, from += 16, to += 16) std::memcpy(to, from, 16 * sizeof *to);
  for (; width >= 4; width -= 4, from += 4, to += 4) std::memcpy(to, from, 4 * sizeof *to);
  for (; width > 0; --width, ++from, ++to) std::memcpy(to, from, sizeof *to);
}

// Sets `spread` for the keys of a batch. Reuses the memory of `spread`. REQUIRES: there are at most
// 2^32 - 1 keys.
void SpreadRows(std::span<const uint64_t> keys, int servers, RowSpread* spread);

// Copies rows from the order of the chunks to the order of the batch. Both spans have the shape
// [keys][width].
void UnspreadRows(const RowSpread& spread, int64_t width, std::span<const float> by_chunk,
                  std::span<float> rows);
// Writes the keys and rows of one chunk to `packed`, in the format of PackRows. `rows` has the
// shape [keys][width] and the order of the batch. Returns the end of the output.
float* PackChunk(const RowSpread& spread, size_t chunk, int64_t width, std::span<const float> rows,
                 float* packed);

}  // namespace muster::push_pull
