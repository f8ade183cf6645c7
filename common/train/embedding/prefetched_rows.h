// Embedding rows that are pulled for a batch before its step. The program's prefetch() names the
// keys. The thread that loads the batch makes the object, and the replica's thread then owns it.
// The client shares the ownership of fetches in progress. Internal to this folder.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/push_pull/client.h"
#include "common/push_pull/rows/key_index.h"
#include "common/push_pull/rows/row_spread.h"

namespace muster {

struct PrefetchedTable {
  push_pull::KeyIndex index;
  // Indexed by a key's number in `index`: its row in the newest fetch with this key.
  std::vector<const float*> row;
  std::vector<uint32_t> chunk;  // Indexed by a key's number: its RowSpread chunk.
  // The first fetch has all keys. Each later one has the keys of a push that followed. Empty if
  // prefetch() named no keys.
  std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;

  // Adds a fetch of `keys`, in the order of `spread`. REQUIRES: `index` has these keys.
  void Add(std::span<const uint64_t> keys, const push_pull::RowSpread& spread, int64_t width,
           std::shared_ptr<push_pull::RowFetch> fetch);
  // Returns the keys among `keys` that this table has.
  std::vector<uint64_t> Known(std::span<const uint64_t> keys) const;
  // Copies the row of each key that this table has to its place in `rows`, [keys][width]. Appends
  // the places of all other keys to `missing`. Sets used[chunk] to true for the chunks of rows from
  // the first fetch. REQUIRES: all fetches have completed.
  void Take(std::span<const uint64_t> keys, int64_t width, std::span<float> rows,
            std::vector<size_t>* missing, std::vector<bool>* used) const;
};

struct PrefetchedRows {
  // Number of the client that pulled the rows. They are invalid with another client.
  int client = 0;
  std::vector<PrefetchedTable> tables;
};

}  // namespace muster
