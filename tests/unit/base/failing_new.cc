#include "tests/unit/base/failing_new.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace muster::testing {
namespace {

// The allocation to fail. The kernel limits names of threads to 15 characters.
struct Chosen {
  char thread[16] = "";
  pthread_t spared{};
  size_t least = 0;
};
Chosen chosen;
std::atomic<int> left = 0;  // The number of allocations up to the failing one. 0: none fails.

bool FailsNow(size_t size) {
  if (left.load(std::memory_order_acquire) <= 0 || size < chosen.least) return false;
  if (chosen.thread[0] == 0) {
    if (pthread_equal(pthread_self(), chosen.spared)) return false;
  } else {
    char name[sizeof chosen.thread] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (std::strcmp(name, chosen.thread) != 0) return false;
  }
  return left.fetch_sub(1) == 1;
}

}  // namespace

FailingNew::FailingNew(const Which& which) {
  chosen = {};
  which.thread.copy(chosen.thread, sizeof chosen.thread - 1);
  chosen.spared = pthread_self();
  chosen.least = which.least;
  left.store(which.nth, std::memory_order_release);
}

FailingNew::~FailingNew() { left = 0; }

bool FailingNew::failed() const { return left.load() <= 0; }

}  // namespace muster::testing

// A sanitizer would otherwise replace this form with its own, whose memory std::free must not get.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return muster::testing::FailsNow(size) ? nullptr : std::malloc(std::max<size_t>(size, 1));
}
void* operator new(size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
