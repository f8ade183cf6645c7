// Memory in huge pages (2 MiB). The keys of a batch are scattered over the memory of an embedding
// table. In small pages, almost each access to a row also waits for a page-table lookup.
//
// A block of at least one huge page has pages of its own, which return to the system when the block
// is freed. Smaller blocks share huge pages. Their sizes are powers of two from 1 KiB on. When both
// halves of a block are free, they become one block again (the buddy allocator of Knuth, The Art of
// Computer Programming, volume 1, 2.5). If the kernel has no free huge page, the memory has small
// pages. In a build with AddressSanitizer or ThreadSanitizer all blocks come from
// std::aligned_alloc, so that the sanitizer sees each block.
//
// Thread-safe.
#pragma once

#include <cstddef>

namespace muster::push_pull {

// Returns the size of the block that AllocateInHugePages returns for `bytes`: at least `bytes`.
size_t HugePageBlockSize(size_t bytes);
// Returns a block that is aligned to a cache line (64 bytes) and not initialized. Throws
// std::bad_alloc if no memory is left.
void* AllocateInHugePages(size_t bytes);
// Frees a block. `bytes` must be the size that was given to AllocateInHugePages.
void FreeInHugePages(void* block, size_t bytes);
// Returns the number of huge pages that small blocks share, including at most one page without
// blocks. Returns 0 in a build with a sanitizer.
size_t SharedHugePages();

// The allocator of a container in huge pages.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  explicit HugePageAllocator(const HugePageAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(AllocateInHugePages(n * sizeof(T))); }
  void deallocate(T* block, size_t n) { FreeInHugePages(block, n * sizeof(T)); }
  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) = default;
};

}  // namespace muster::push_pull
