#include "common/push_pull/rows/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::push_pull {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSmallest = 1 << 10;  // Bytes of the smallest block.
constexpr size_t kUnits = kHugePage / kSmallest;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MUSTER_SEPARATE_BLOCKS true
#elif defined(__has_feature)
#define MUSTER_SEPARATE_BLOCKS (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define MUSTER_SEPARATE_BLOCKS false
#endif
constexpr bool kSeparate = MUSTER_SEPARATE_BLOCKS;

std::byte* Map(size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(mapped);
}

// Returns the number of bytes from `address` to the next start of a huge page.
size_t ToPage(const std::byte* address) {
  return -reinterpret_cast<uintptr_t>(address) % kHugePage;
}

// Maps whole huge pages. If mmap does not return the start of a huge page, maps one page more and
// cuts the ends.
std::byte* MapPages(size_t bytes) {
  std::byte* begin = Map(bytes);
  if (ToPage(begin) != 0) {
    munmap(begin, bytes);
    begin = Map(bytes + kHugePage);
    const size_t before = ToPage(begin);
    if (before > 0) munmap(begin, before);
    begin += before;
    munmap(begin + bytes, kHugePage - before);
  }
  (void)madvise(begin, bytes, MADV_HUGEPAGE);
  return begin;
}

// The huge pages that small blocks share. A block of order o has kSmallest << o bytes.
class SharedPages {
 public:
  std::byte* Take(int order) {
    absl::MutexLock lock(&mutex_);
    int from = order;
    while (from <= kOrders && free_[from] == nullptr) ++from;
    if (from > kOrders) AddPageLocked(), from = kOrders;
    FreeBlock* const block = free_[from];
    RemoveLocked(block, from);
    auto* const begin = reinterpret_cast<std::byte*>(block);
    // Halves the block down to the order. The second half of each becomes free.
    while (from-- > order) AddLocked(begin + (kSmallest << from), from);
    return begin;
  }

  void Return(std::byte* block, int order) {
    absl::MutexLock lock(&mutex_);
    std::byte* const page = PageOf(block);
    const Orders& orders = pages_.find(page)->second;
    for (; order < kOrders; ++order) {
      std::byte* const buddy = page + (static_cast<size_t>(block - page) ^ (kSmallest << order));
      if (orders[UnitOf(buddy)] != order + 1) break;
      RemoveLocked(reinterpret_cast<FreeBlock*>(buddy), order);
      block = std::min(block, buddy);
    }
    // Keeps one free page, so that allocating and freeing one block in turns does not map a page
    // each time. munmap fails if the kernel cannot split a mapping.
    if (order == kOrders && free_[kOrders] != nullptr && munmap(page, kHugePage) == 0) {
      pages_.erase(page);
    } else {
      AddLocked(block, order);
    }
  }

  size_t pages() {
    absl::MutexLock lock(&mutex_);
    return pages_.size();
  }

 private:
  static constexpr int kOrders = std::countr_zero(kUnits);  // The order of a whole page.
  // Indexed by unit of kSmallest bytes: 1 + the order of the free block that begins there, else 0.
  using Orders = std::array<uint8_t, kUnits>;
  // The list of free blocks is in the blocks, so that freeing a block needs no memory.
  struct FreeBlock {
    FreeBlock *next, *previous;
  };

  static std::byte* PageOf(std::byte* block) {
    return block - reinterpret_cast<uintptr_t>(block) % kHugePage;
  }
  static size_t UnitOf(std::byte* block) {
    return reinterpret_cast<uintptr_t>(block) % kHugePage / kSmallest;
  }

  void AddPageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const page = MapPages(kHugePage);
    try {
      pages_.emplace(page, Orders{});
    } catch (...) {
      munmap(page, kHugePage);
      throw;
    }
    AddLocked(page, kOrders);
  }
  void AddLocked(std::byte* begin, int order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto* const block = new (begin) FreeBlock{free_[order], nullptr};
    if (block->next != nullptr) block->next->previous = block;
    free_[order] = block;
    pages_.find(PageOf(begin))->second[UnitOf(begin)] = static_cast<uint8_t>(order + 1);
  }
  void RemoveLocked(FreeBlock* block, int order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    (block->previous != nullptr ? block->previous->next : free_[order]) = block->next;
    if (block->next != nullptr) block->next->previous = block->previous;
    auto* const begin = reinterpret_cast<std::byte*>(block);
    pages_.find(PageOf(begin))->second[UnitOf(begin)] = 0;
  }

  absl::Mutex mutex_;
  std::unordered_map<std::byte*, Orders> pages_ ABSL_GUARDED_BY(mutex_);   // By the page's address.
  std::array<FreeBlock*, kOrders + 1> free_ ABSL_GUARDED_BY(mutex_) = {};  // Indexed by order.
};

SharedPages& Shared() {
  static auto* const pages = new SharedPages;  // Outlives all tables.
  return *pages;
}

bool IsSmall(size_t bytes) { return bytes <= kHugePage / 2; }
int OrderOf(size_t bytes) { return std::countr_zero(HugePageBlockSize(bytes) / kSmallest); }

}  // namespace

size_t HugePageBlockSize(size_t bytes) {
  if (IsSmall(bytes)) return std::bit_ceil(std::max(bytes, kSmallest));
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

void* AllocateInHugePages(size_t bytes) {
  const size_t size = HugePageBlockSize(bytes);
  if (!kSeparate) return IsSmall(bytes) ? Shared().Take(OrderOf(bytes)) : MapPages(size);
  void* const block = std::aligned_alloc(kSmallest, size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void FreeInHugePages(void* block, size_t bytes) {
  if (kSeparate) return std::free(block);
  if (IsSmall(bytes)) return Shared().Return(static_cast<std::byte*>(block), OrderOf(bytes));
  munmap(block, HugePageBlockSize(bytes));
}

size_t SharedHugePages() { return kSeparate ? 0 : Shared().pages(); }

}  // namespace muster::push_pull
