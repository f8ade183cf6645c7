// Rows of embedding tables that are pulled for a batch before its step, by the keys that the
// program named. Made on the thread that loads the batch, then owned by the replica's thread. The
// client also holds the fetches in progress. Internal to this folder.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/push_pull/client.h"
#include "common/push_pull/rows/key_index.h"
#include "common/push_pull/rows/row_spread.h"

namespace muster {

struct PrefetchedTable {
  KeyIndex index;
  // Indexed by a key's number: its row, in the memory of the newest fetch that has it.
  std::vector<const float*> row;
  std::vector<uint32_t> chunk;  // Indexed by a key's number: its chunk in RowSpread.
  // First the fetch of all keys, then fetches of keys that were pushed since. Empty: no keys were
  // named.
  std::vector<std::shared_ptr<ps::RowFetch>> fetches;

  // Adds a fetch of `keys`, which are among the index's keys and spread as `spread` says.
  void Add(std::span<const uint64_t> keys, const RowSpread& spread, int64_t width,
           std::shared_ptr<ps::RowFetch> fetch);
  // Returns those of `keys` that this table has.
  std::vector<uint64_t> Known(std::span<const uint64_t> keys) const;
  // Copies the rows of known `keys` to their places in `rows`, [keys][width]. Appends the places of
  // unknown keys to `missing`. Sets used[chunk] if a row of that chunk came from the first fetch.
  // Requires that all fetches have completed.
  void Take(std::span<const uint64_t> keys, int64_t width, std::span<float> rows,
            std::vector<size_t>* missing, std::vector<bool>* used) const;
};

struct PrefetchedRows {
  int client = 0;  // Number of the exchange's client. With another client these rows are invalid.
  std::vector<PrefetchedTable> tables;
};

}  // namespace muster
