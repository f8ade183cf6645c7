// A snapshot of the rows of an embedding table. Internal to this folder.
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

// A snapshot of one shard's rows. It has pointers to the rows, which do not move. It also has
// copies of the rows that changed or were evicted after the snapshot. `rows` is constant. The
// shard's lock guards the rest.
struct FrozenShard {
  std::vector<RowStorage::Entry> rows;
  std::unordered_map<const float*, size_t> places;  // Maps a copied row to its index in `copies`.
  std::vector<float> copies;

  // Copies rows that are not copied yet. Must be called before the rows change.
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
  struct Part {
    absl::Mutex* mu;
    std::shared_ptr<FrozenShard> shard;
    int64_t begin;  // The number of the shard's first row, in the whole snapshot.
  };
  FrozenRows(const RowShape& shape, RowType type, std::vector<Part> parts, int64_t size)
      : shape_(shape), type_(type), parts_(std::move(parts)), size_(size) {}

  int64_t size() const override { return size_; }
  void ReadKeys(int64_t first, std::span<uint64_t> keys) const override;
  void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
            float* out) const override;

 private:
  // Calls use(shard, row, i) for rows first + i, with i from 0 to count - 1. Holds a reader lock of
  // the row's shard.
  template <typename Use>
  void ForEach(int64_t first, int64_t count, const Use& use) const;

  const RowShape& shape_;  // Owned by the table.
  const RowType type_;
  const std::vector<Part> parts_;
  const int64_t size_;
};

}  // namespace muster::push_pull
