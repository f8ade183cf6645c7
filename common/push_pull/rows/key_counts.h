// Counts occurrences of a bounded number of keys. Internal to this folder. Guarded by the owner's
// lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace muster {

class KeyCounts {
 public:
  // Approximate: an entry of the map and its part of the buckets.
  static constexpr int64_t kBytesOfEach = 48;

  explicit KeyCounts(size_t most) : most_(most) {}

  // Increments the key's count and returns it. If there are too many keys, all counts are halved
  // first and counts of 0 are removed, until half of the capacity is free.
  int64_t Add(uint64_t key);
  void Remove(uint64_t key) { counts_.erase(key); }
  void Set(uint64_t key, int64_t count) { counts_[key] = count; }
  const std::unordered_map<uint64_t, int64_t>& counts() const { return counts_; }

 private:
  const size_t most_;
  std::unordered_map<uint64_t, int64_t> counts_;
};

}  // namespace muster
