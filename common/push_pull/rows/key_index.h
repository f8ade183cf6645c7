// KeyIndex numbers the distinct keys of a batch: 0, 1, 2, ... in the order of their first
// occurrence. Callers can store the data of each key in an array, with these numbers as indices.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::push_pull {

class KeyIndex {
 public:
  // Gives each new key the next number. Sets `numbers` to the numbers of `keys`.
  void Add(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers);
  // Sets `numbers` to the numbers of `keys`. A key without a number gets kNone.
  static constexpr uint32_t kNone = ~0u;
  void Find(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) const;
  // Returns the keys that have numbers, in the order of their numbers.
  const std::vector<uint64_t>& keys() const { return keys_; }
  // Removes all keys in constant time. Keeps the memory for the next batch.
  void Clear();

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t number = 0;
    uint32_t round = 0;  // The entry is in use if `round` equals round_.
  };
  void Grow();
  size_t PlaceOf(uint64_t key) const;
  Entry& At(uint64_t key) { return entries_[PlaceOf(key)]; }

  // A hash table with open addressing, at most half full. The size is a power of two.
  std::vector<Entry> entries_;
  std::vector<uint64_t> keys_;
  uint32_t round_ = 1;  // Clear increments round_ to free all entries.
};

// Sums the gradients of each key's row. Not thread-safe.
class KeySums {
 public:
  explicit KeySums(int64_t width) : width_(width) {}
  // Adds each key's gradient to the key's sum, in the order of `keys`. `gradients` has the shape
  // [keys][width].
  void Add(std::span<const uint64_t> keys, const float* gradients);
  void Clear();

  const std::vector<uint64_t>& keys() const { return index_.keys(); }
  // Returns the sums, in the shape [keys()][width].
  const std::vector<float>& sums() const { return sums_; }
  std::vector<float>& sums() { return sums_; }
  int64_t width() const { return width_; }

 private:
  const int64_t width_;
  KeyIndex index_;
  std::vector<uint32_t> numbers_;
  std::vector<float> sums_;
};

}  // namespace muster::push_pull
