#include "common/push_pull/rows/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::push_pull {
namespace {

constexpr size_t kLine = 64, kHugePage = 2 << 20;
constexpr size_t kPages = 4;  // Small blocks are cut out of this many huge pages at a time.

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kShare = false;
#else
constexpr bool kShare = true;
#endif

void* AllocateAligned(size_t alignment, size_t bytes) {
  void* const block =
      std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) (void)madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

// The blocks that share huge pages.
class SmallBlocks {
 public:
  void* Take(size_t bytes) {
    const int size = SizeOf(bytes);
    absl::MutexLock lock(&mutex_);
    int from = size;
    while (from < kSizes && free_[from].empty()) ++from;
    if (from == kSizes) AddPagesLocked(), from = kSizes - 1;
    char* const block = free_[from].back();
    free_[from].pop_back();
    // Halves the block down to the size. The second half of each becomes free.
    while (from-- > size) free_[from].push_back(block + (kLine << from));
    return block;
  }

  void Return(void* block, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    free_[SizeOf(bytes)].push_back(static_cast<char*>(block));
  }

 private:
  // Size s has kLine << s bytes. The largest size is a huge page.
  static constexpr int kSizes = std::countr_zero(kHugePage / kLine) + 1;
  static int SizeOf(size_t bytes) {
    return std::countr_zero(std::bit_ceil(std::max(bytes, kLine)) / kLine);
  }

  void AddPagesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    char* const pages = static_cast<char*>(AllocateAligned(kHugePage, kPages * kHugePage));
    for (size_t p = kPages; p-- > 0;) free_[kSizes - 1].push_back(pages + p * kHugePage);
  }

  absl::Mutex mutex_;
  std::array<std::vector<char*>, kSizes> free_ ABSL_GUARDED_BY(mutex_);
};

SmallBlocks& Small() {
  static auto* const blocks = new SmallBlocks;  // Outlives all tables.
  return *blocks;
}

}  // namespace

void* AllocateInHugePages(size_t bytes) {
  if (bytes >= kHugePage) return AllocateAligned(kHugePage, bytes);
  return kShare ? Small().Take(bytes) : AllocateAligned(kLine, bytes);
}

void FreeInHugePages(void* block, size_t bytes) {
  if (bytes >= kHugePage || !kShare) return std::free(block);
  Small().Return(block, bytes);
}

}  // namespace muster::push_pull
