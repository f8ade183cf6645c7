// The implementation of EmbeddingTable::Frozen, a snapshot of the rows of an embedding table.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/push_pull/rows/embedding_table.h"
#include "common/push_pull/rows/row_shape.h"
#include "common/push_pull/rows/row_storage.h"

namespace muster::push_pull {

// A snapshot of the rows of one shard of the table. The snapshot points to the rows in RowStorage.
// Before a row changes or is evicted, the table copies the row to `copies`. `rows` never changes.
// The shard's lock guards `places` and `copies`.
struct FrozenShard {
  std::vector<RowStorage::Entry> rows;
  std::unordered_map<const float*, size_t> places;  // Maps a copied row to its index in `copies`.
  std::vector<float> copies;

  // Copies the rows in `changing` that are not copied yet. Called before the rows change. `floats`
  // is the number of float32 elements of a row.
  void Keep(std::span<float* const> changing, int64_t floats) {
    for (const float* row : changing) {
      if (!places.try_emplace(row, copies.size()).second) continue;
      copies.insert(copies.end(), row, row + floats);
    }
  }
  // Returns the row's content at the time of the snapshot.
  const float* At(const float* row) const {
    const auto kept = places.find(row);
    return kept == places.end() ? row : copies.data() + kept->second;
  }
};

class FrozenRows final : public EmbeddingTable::Frozen {
 public:
  struct ShardRows {
    absl::Mutex* mu;  // The shard's lock.
    std::shared_ptr<FrozenShard> shard;
    int64_t begin;  // The index of the shard's first row in the whole snapshot.
  };
  FrozenRows(const RowShape& shape, RowType type, std::vector<ShardRows> parts, int64_t size)
      : shape_(shape), type_(type), parts_(std::move(parts)), size_(size) {}

  int64_t size() const override { return size_; }
  void ReadKeys(int64_t first, std::span<uint64_t> keys) const override;
  void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
            float* out) const override;

 private:
  // Calls use(shard, row, i) for each i from 0 to count - 1. `row` is the row at index first + i of
  // the snapshot. ForEach holds a reader lock on the row's shard during each call.
  template <typename Use>
  void ForEach(int64_t first, int64_t count, const Use& use) const;

  const RowShape& shape_;  // Owned by the table.
  const RowType type_;
  const std::vector<ShardRows> parts_;
  const int64_t size_;
};

}  // namespace muster::push_pull
