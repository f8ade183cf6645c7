#include "common/push_pull/rows/frozen_rows.h"

#include <algorithm>

#include "common/base/prefetch.h"
#include "common/push_pull/rows/row_values.h"

namespace muster::push_pull {
template <typename Use>
void FrozenRows::ForEach(int64_t first, int64_t count, const Use& use) const {
  for (const ShardRows& part : parts_) {
    const auto rows = static_cast<int64_t>(part.shard->rows.size());
    const int64_t from = std::max<int64_t>(0, first - part.begin);
    const int64_t to = std::min(rows, first + count - part.begin);
    if (from >= to) continue;
    absl::ReaderMutexLock lock(part.mu);
    for (int64_t r = from; r < to; ++r) {
      if (r + static_cast<int64_t>(kPrefetchDistance) < to)
        __builtin_prefetch(part.shard->rows[r + kPrefetchDistance].row);
      use(*part.shard, part.shard->rows[r], part.begin + r - first);
    }
  }
}

void FrozenRows::ReadKeys(int64_t first, std::span<uint64_t> keys) const {
  ForEach(first, static_cast<int64_t>(keys.size()),
          [&](const FrozenShard&, const RowStorage::Entry& row, int64_t i) { keys[i] = row.key; });
}

void FrozenRows::Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
                      float* out) const {
  std::vector<float> parameter(static_cast<size_t>(shape_.width));
  const int64_t of_parameter = std::clamp<int64_t>(shape_.width - begin, 0, elements);
  ForEach(first, count, [&](const FrozenShard& shard, const RowStorage::Entry& row, int64_t i) {
    const float* from = shard.At(row.row);
    float* to = out + i * elements;
    if (of_parameter > 0) {
      Load(type_, from, parameter);
      std::copy_n(parameter.data() + begin, of_parameter, to);
    }
    const int64_t tail = std::max(begin, shape_.width) - shape_.width + shape_.parameter;
    std::copy_n(from + tail, elements - of_parameter, to + of_parameter);
  });
}

}  // namespace muster::push_pull
