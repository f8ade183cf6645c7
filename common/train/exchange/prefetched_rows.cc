#include "common/train/exchange/prefetched_rows.h"

#include <algorithm>

#include "common/base/prefetch.h"
#include "common/push_pull/rows/row_spread.h"

namespace muster {

using push_pull::KeyIndex;

void PrefetchedTable::Add(std::span<const uint64_t> keys, const push_pull::RowSpread& spread,
                          int64_t width, std::shared_ptr<push_pull::RowFetch> fetch) {
  std::vector<uint32_t> numbers;
  index.Find(keys, &numbers);
  row.resize(index.keys().size());
  chunk.resize(index.keys().size());
  for (size_t c = 0; c < spread.chunks(); ++c)
    for (size_t i = spread.begin[c]; i < spread.begin[c + 1]; ++i) {
      const uint32_t number = numbers[spread.order[i]];
      row[number] = fetch->rows.data() + static_cast<int64_t>(i) * width;
      chunk[number] = static_cast<uint32_t>(c);
    }
  fetches.push_back(std::move(fetch));
}

std::vector<uint64_t> PrefetchedTable::Known(std::span<const uint64_t> keys) const {
  std::vector<uint32_t> numbers;
  index.Find(keys, &numbers);
  std::vector<uint64_t> known;
  for (size_t i = 0; i < keys.size(); ++i)
    if (numbers[i] != KeyIndex::kNone) known.push_back(keys[i]);
  return known;
}

void PrefetchedTable::Take(std::span<const uint64_t> keys, int64_t width, std::span<float> rows,
                           std::vector<size_t>* missing, std::vector<bool>* used) const {
  std::vector<uint32_t> numbers;
  index.Find(keys, &numbers);
  const float* const first = fetches.front()->rows.data();
  const float* const last = first + fetches.front()->rows.size();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kPrefetchDistance < keys.size() && numbers[i + kPrefetchDistance] != KeyIndex::kNone)
      __builtin_prefetch(row[numbers[i + kPrefetchDistance]]);
    if (numbers[i] == KeyIndex::kNone) {
      missing->push_back(i);
      continue;
    }
    const float* const from = row[numbers[i]];
    if (from >= first && from < last) (*used)[chunk[numbers[i]]] = true;
    push_pull::CopyRow(from, width, rows.data() + static_cast<int64_t>(i) * width);
  }
}

}  // namespace muster
