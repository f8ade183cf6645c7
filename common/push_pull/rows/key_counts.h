// Counts the updates of keys that have no row in an embedding table yet (RowLimits::admit_after in
// embedding_table.h). Not thread-safe: EmbeddingTable guards each KeyCounts with a lock. Internal
// to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace muster::push_pull {

class KeyCounts {
 public:
  // The approximate number of bytes that the map needs for a key.
  static constexpr int64_t kBytesOfEach = 48;

  // `most` is the maximum number of keys.
  explicit KeyCounts(size_t most) : most_(most) {}

  // Increments the key's count and returns the new count. If the key is new and the object is full,
  // first halves all counts and removes counts of 0, and repeats this until no more than `most` / 2
  // keys are left.
  int64_t Add(uint64_t key);
  void Remove(uint64_t key) { counts_.erase(key); }
  void Set(uint64_t key, int64_t count) { counts_[key] = count; }
  const std::unordered_map<uint64_t, int64_t>& counts() const { return counts_; }

 private:
  const size_t most_;
  std::unordered_map<uint64_t, int64_t> counts_;
};

}  // namespace muster::push_pull
