// Counts the updates of keys that an embedding table does not admit yet, for at most `most` keys.
// Guarded by the owner's lock. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace muster::push_pull {

class KeyCounts {
 public:
  // The approximate memory of a key: an entry of the map and its part of the buckets.
  static constexpr int64_t kBytesOfEach = 48;

  explicit KeyCounts(size_t most) : most_(most) {}

  // Increments the key's count and returns it. If the key is new and there are `most` keys, first
  // halves all counts and removes those that become 0, repeatedly until half the capacity is free.
  int64_t Add(uint64_t key);
  void Remove(uint64_t key) { counts_.erase(key); }
  void Set(uint64_t key, int64_t count) { counts_[key] = count; }
  const std::unordered_map<uint64_t, int64_t>& counts() const { return counts_; }

 private:
  const size_t most_;
  std::unordered_map<uint64_t, int64_t> counts_;
};

}  // namespace muster::push_pull
