// Embedding rows that a worker pulls from parameter servers before the step that uses them. The
// program's prefetch() names the keys for a batch. The thread that loads the batch makes a
// PrefetchedRows, and the replica's thread then owns it. A fetch is one request for rows. The
// client (push_pull/client.h) also keeps each fetch alive until its rows have arrived. Internal to
// this folder.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/push_pull/client.h"
#include "common/push_pull/rows/key_index.h"
#include "common/push_pull/rows/row_spread.h"

namespace muster {

struct PrefetchedTable {
  // Gives each prefetched key a number.
  push_pull::KeyIndex index;
  // Indexed by the number of a key: the key's row in the newest fetch that has the key.
  std::vector<const float*> row;
  // Indexed by the number of a key: the chunk that has the key's row. Chunks are numbered as in
  // RowSpread.
  std::vector<uint32_t> chunk;
  // The first fetch has all keys. Each later fetch follows a push of this worker, and has the
  // prefetched keys that this push updated. Empty if prefetch() named no keys.
  std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;

  // Adds a fetch of `keys`. The rows of `fetch` are in the order of `spread`. REQUIRES: `index` has
  // all `keys`.
  void Add(std::span<const uint64_t> keys, const push_pull::RowSpread& spread, int64_t width,
           std::shared_ptr<push_pull::RowFetch> fetch);
  // Returns the elements of `keys` that this table has.
  std::vector<uint64_t> Known(std::span<const uint64_t> keys) const;
  // Copies rows to `rows`, in the shape [keys][width]. If this table has the row of keys[i], copies
  // the row to position i of `rows`. Otherwise, appends i to `missing`. For each row from the first
  // fetch, sets (*used)[chunk] to true, where `chunk` is the chunk of the row. REQUIRES: all
  // fetches have completed.
  void Take(std::span<const uint64_t> keys, int64_t width, std::span<float> rows,
            std::vector<size_t>* missing, std::vector<bool>* used) const;
};

struct PrefetchedRows {
  // The number of the client that pulled the rows. The first client that
  // ParameterExchange::UseClient received has the number 1, the next one 2, and so on. The rows are
  // invalid for another client.
  int client = 0;
  std::vector<PrefetchedTable> tables;
};

}  // namespace muster
