// Numbers the distinct keys of a batch 0, 1, 2, ... in order of first occurrence, so that data by
// key can be stored in a plain array. Clear takes constant time and keeps the memory. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

class KeyIndex {
 public:
  // Returns the number of each key. New keys are appended to keys().
  void Add(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers);
  // Returns the number of each key, or kNone for a key that was not added.
  static constexpr uint32_t kNone = ~0u;
  void Find(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) const;
  const std::vector<uint64_t>& keys() const { return keys_; }
  void Clear();

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t number = 0;
    uint32_t round = 0;  // The entry is free unless this equals round_.
  };
  void Grow();
  size_t PlaceOf(uint64_t key) const;
  Entry& At(uint64_t key) { return entries_[PlaceOf(key)]; }

  std::vector<Entry> entries_;  // The size is a power of two. Open addressing, at most half full.
  std::vector<uint64_t> keys_;
  uint32_t round_ = 1;
};

// Sums gradients of rows by key.
class KeySums {
 public:
  explicit KeySums(int64_t width) : width_(width) {}
  // `gradients` is [keys][width]. The sum follows the order of calls and of the keys in each call.
  void Add(std::span<const uint64_t> keys, const float* gradients);
  void Clear();

  const std::vector<uint64_t>& keys() const { return index_.keys(); }
  const std::vector<float>& sums() const { return sums_; }  // Shape [keys()][width].
  std::vector<float>& sums() { return sums_; }
  int64_t width() const { return width_; }

 private:
  const int64_t width_;
  KeyIndex index_;
  std::vector<uint32_t> numbers_;
  std::vector<float> sums_;
};

}  // namespace muster
