// Memory in huge pages. The keys of a batch are scattered over the memory of an embedding table.
// In small pages, almost each access to a row needs a page-table lookup, which costs as much as the
// access itself.
//
// Blocks of at least one huge page (2 MiB) come from the C library and return to it. Smaller
// blocks share huge pages: each has a power of two of bytes. A freed small block is reused for
// blocks of its size, and stays with the process. Where the host has no huge pages, all blocks are
// in small pages. With AddressSanitizer all blocks come from the C library, which checks accesses.
//
// Thread-safe.
#pragma once

#include <cstddef>

namespace muster::push_pull {

// Returns memory for `bytes` bytes, aligned to a cache line (64 bytes) and not initialized. Throws
// std::bad_alloc if no memory is left.
void* AllocateInHugePages(size_t bytes);
// Frees a block. `bytes` must be the size that was given to AllocateInHugePages.
void FreeInHugePages(void* block, size_t bytes);

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
