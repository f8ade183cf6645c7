// The memory of the rows of one shard of an embedding table, with a hash table from keys to rows.
// All rows have the same size. A row never moves. RowStorage allocates memory in slabs. A slab has
// memory for many rows. Each slab is larger than the previous one, up to a limit. Slabs and the
// hash table are in huge pages (huge_pages.h). New rows reuse the memory of erased rows.
//
// Not thread-safe: the lock of the table's shard guards the object. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/hash.h"
#include "common/push_pull/rows/huge_pages.h"

namespace muster::push_pull {

class RowStorage {
 public:
  struct Entry {
    uint64_t key = 0;
    float* row = nullptr;  // Null: the entry is free.
  };
  using Entries = std::vector<Entry, HugePageAllocator<Entry>>;

  // `floats` is the number of float32 elements of a row. `most` is the expected maximum number of
  // rows, or 0 if unknown.
  RowStorage(int64_t floats, int64_t most);

  // In Prefetch and At, `hash` is SplitMix64 of the key.
  //
  // Loads the key's entry into the processor's cache.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[hash & Mask()]); }
  // Returns the key's entry. If the key has no row, returns the free entry for the key.
  const Entry& At(uint64_t key, uint64_t hash) const { return entries_[PlaceOf(key, hash)]; }
  // Adds a row for the key and returns the row's memory, which is not initialized. `free` is the
  // free entry that At returned. Invalidates references to entries.
  float* Put(const Entry& free, uint64_t key);
  // REQUIRES: the key has a row.
  void Erase(uint64_t key);

  size_t size() const { return size_; }
  // Returns all entries, including the free ones.
  const Entries& entries() const { return entries_; }

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
  Entries entries_;
  size_t size_ = 0;
  struct Free {
    size_t bytes = 0;
    void operator()(float* memory) const { FreeInHugePages(memory, bytes); }
  };
  std::vector<std::unique_ptr<float[], Free>> slabs_;
  float* next_ = nullptr;     // The first unused row of the last slab.
  int64_t unused_ = 0;        // The number of unused rows of the last slab.
  std::vector<float*> left_;  // The memory of erased rows.
};

}  // namespace muster::push_pull
