// Memory for the rows of one shard of an embedding table, by key: all of one size, in slabs, so
// that a row stays where it is until it goes. What it leaves is the next one's. Slabs begin where a
// cache line does, and grow with the shard; large ones are in huge pages where the host has some.
// Under its owner's lock. Internal to this folder.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/base/hash.h"

namespace muster {

class RowStorage {
 public:
  struct Entry {
    uint64_t key = 0;
    float* row = nullptr;  // null: free
  };

  // `floats`: of a row; `most`: rows that are expected at the most, 0: not known.
  RowStorage(int64_t floats, int64_t most);

  // `hash` is SplitMix64's of the key.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[hash & Mask()]); }
  // The key's entry, or the free one where it belongs.
  const Entry& At(uint64_t key, uint64_t hash) const { return entries_[PlaceOf(key, hash)]; }
  // Memory for the key of a free entry, as its last row left it. The entry moves.
  float* Put(const Entry& free, uint64_t key);
  // REQUIRES: it has a row.
  void Erase(uint64_t key);

  size_t size() const { return size_; }
  // The free ones, too.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  size_t Mask() const { return entries_.size() - 1; }
  size_t PlaceOf(uint64_t key, uint64_t hash) const {
    size_t at = hash & Mask();
    while (entries_[at].row != nullptr && entries_[at].key != key) at = (at + 1) & Mask();
    return at;
  }
  void Grow();
  float* NewRow();
  void NewSlab();

  const int64_t floats_, most_;
  std::vector<Entry> entries_;  // open addressing with linear probing: a power of two, half full
  size_t size_ = 0;
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<float[], Free>> slabs_;
  float* next_ = nullptr;     // of the last slab's rows
  int64_t unused_ = 0;        // of them
  std::vector<float*> left_;  // by rows that went
};

}  // namespace muster
