// Numbers the distinct keys of a batch 0, 1, 2, ... in the order of first occurrence. Callers can
// then store data of each key in a plain array. Clear takes constant time and keeps the memory. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::push_pull {

class KeyIndex {
 public:
  // Sets `numbers` to the number of each key. Appends new keys to keys().
  void Add(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers);
  // Sets `numbers` to the number of each key, or kNone for a key that was not added.
  static constexpr uint32_t kNone = ~0u;
  void Find(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) const;
  const std::vector<uint64_t>& keys() const { return keys_; }
  void Clear();

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t number = 0;
    uint32_t round = 0;  // The entry is in use if this equals round_, and free otherwise.
  };
  void Grow();
  size_t PlaceOf(uint64_t key) const;
  Entry& At(uint64_t key) { return entries_[PlaceOf(key)]; }

  // A hash table with open addressing, at most half full. The size is a power of two.
  std::vector<Entry> entries_;
  std::vector<uint64_t> keys_;
  uint32_t round_ = 1;
};

// Sums gradients of rows by key.
class KeySums {
 public:
  explicit KeySums(int64_t width) : width_(width) {}
  // Adds each key's gradient to its sum. `gradients` is [keys][width]. A key's gradients are added
  // in the order of calls, and within a call in the order of `keys`.
  void Add(std::span<const uint64_t> keys, const float* gradients);
  void Clear();

  const std::vector<uint64_t>& keys() const { return index_.keys(); }
  const std::vector<float>& sums() const { return sums_; }  // [keys()][width].
  std::vector<float>& sums() { return sums_; }
  int64_t width() const { return width_; }

 private:
  const int64_t width_;
  KeyIndex index_;
  std::vector<uint32_t> numbers_;
  std::vector<float> sums_;
};

}  // namespace muster::push_pull
