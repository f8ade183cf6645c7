// Rows of embedding tables that are pulled for a batch before its step, by the keys that the
// program named. Internal to this folder. Made on the thread that loads the batch; from then on the
// replica's thread has it, and the client what is under way.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/push_pull/client.h"
#include "common/push_pull/key_index.h"
#include "common/push_pull/row_spread.h"

namespace muster {

struct PrefetchedTable {
  KeyIndex index;
  // By a key's number: its row, in the memory of the newest fetch that has it.
  std::vector<const float*> row;
  std::vector<uint32_t> chunk;  // likewise: RowSpread's
  // All keys first, then those that were pushed since. None: no keys were named.
  std::vector<std::shared_ptr<ps::RowFetch>> fetches;

  // `fetch` is of `keys`, spread, which are among the index's.
  void Add(std::span<const uint64_t> keys, const RowSpread& spread, int64_t width,
           std::shared_ptr<ps::RowFetch> fetch);
  // Those of `keys` that are here.
  std::vector<uint64_t> Known(std::span<const uint64_t> keys) const;
  // Copies the rows of `keys` that are here to their places in `rows`, [keys][width]. `missing`
  // gets the places of the others, `used` (by chunk) is set where a row of the first fetch was
  // taken. REQUIRES: all fetches were awaited.
  void Take(std::span<const uint64_t> keys, int64_t width, std::span<float> rows,
            std::vector<size_t>* missing, std::vector<bool>* used) const;
};

struct PrefetchedRows {
  int client = 0;  // of the exchange's, in their order: with another one these are void
  std::vector<PrefetchedTable> tables;
};

}  // namespace muster
