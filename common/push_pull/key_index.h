// Numbers the different keys of a batch 0, 1, 2, ... in the order in which they come first, so that
// what belongs to a key can lie in a plain array. Emptying it costs nothing, and it keeps its
// memory. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

class KeyIndex {
 public:
  // The number of each key; new ones are added at the end of keys().
  void Add(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers);
  // The number of each key; kNone of one that was not added.
  static constexpr uint32_t kNone = ~0u;
  void Find(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) const;
  const std::vector<uint64_t>& keys() const { return keys_; }
  void Clear();

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t number = 0;
    uint32_t round = 0;  // the entry is free unless it is round_
  };
  void Grow();
  size_t PlaceOf(uint64_t key) const;
  Entry& At(uint64_t key) { return entries_[PlaceOf(key)]; }

  std::vector<Entry> entries_;  // a power of two, open addressing, at most half full
  std::vector<uint64_t> keys_;
  uint32_t round_ = 1;
};

// Gradients of rows by key, summed.
class KeySums {
 public:
  explicit KeySums(int64_t width) : width_(width) {}
  // `gradients` is [keys][width]. Summed in the order of the calls and of the keys in each.
  void Add(std::span<const uint64_t> keys, const float* gradients);
  void Clear();

  const std::vector<uint64_t>& keys() const { return index_.keys(); }
  const std::vector<float>& sums() const { return sums_; }  // [keys()][width]
  std::vector<float>& sums() { return sums_; }
  int64_t width() const { return width_; }

 private:
  const int64_t width_;
  KeyIndex index_;
  std::vector<uint32_t> numbers_;
  std::vector<float> sums_;
};

}  // namespace muster
