// Memory for the rows of one shard of an embedding table, by key. All rows have the same size. They
// lie in slabs, so a row does not move until it is erased. New rows reuse the memory of erased
// rows. Slabs are aligned to cache lines, and later slabs are larger. Large slabs use huge pages if
// the host has them. Guarded by the owner's lock. Internal to this folder.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/base/hash.h"

namespace muster::push_pull {

class RowStorage {
 public:
  struct Entry {
    uint64_t key = 0;
    float* row = nullptr;  // Null: the entry is free.
  };

  // `floats` is the size of a row. `most` is the expected maximum number of rows, 0 if unknown.
  RowStorage(int64_t floats, int64_t most);

  // Loads the key's entry into the cache. Here and in At, `hash` is SplitMix64 of the key.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[hash & Mask()]); }
  // Returns the key's entry, or the free entry where it would be inserted.
  const Entry& At(uint64_t key, uint64_t hash) const { return entries_[PlaceOf(key, hash)]; }
  // Inserts a row for the key at the entry that At returned. Returns the row's memory, which is not
  // initialized. Invalidates references to entries.
  float* Put(const Entry& free, uint64_t key);
  // REQUIRES: the key has a row.
  void Erase(uint64_t key);

  size_t size() const { return size_; }
  // Returns all entries, including the free ones.
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
  // A hash table with linear probing, at most half full. The size is a power of two.
  std::vector<Entry> entries_;
  size_t size_ = 0;
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<float[], Free>> slabs_;
  float* next_ = nullptr;     // The next free row of the last slab.
  int64_t unused_ = 0;        // The number of free rows in the last slab.
  std::vector<float*> left_;  // Memory of erased rows.
};

}  // namespace muster::push_pull
