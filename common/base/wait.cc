#include "common/base/wait.h"

namespace muster {
namespace {

#ifndef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#error "this C++ library waits for a point in monotonic time by the wall clock"
#endif

// Adapts absl::Mutex to std::condition_variable_any, which unlocks it while it waits. The calling
// thread holds the mutex before and after the wait, which the thread-safety analysis cannot see.
struct HeldMutex {
  absl::Mutex* mutex;
  void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Lock(); }
  void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Unlock(); }
};

}  // namespace

bool CondVar::WaitFor(absl::Mutex* mutex, Duration limit) {
  const MonotonicTime now = Clock::now();
  return WaitUntil(mutex, limit < MonotonicTime::max() - now ? now + limit : MonotonicTime::max());
}

bool CondVar::WaitUntil(absl::Mutex* mutex, MonotonicTime until) {
  HeldMutex held{mutex};
  if (until != MonotonicTime::max())
    return variable_.wait_until(held, until) == std::cv_status::timeout;
  variable_.wait(held);
  return false;
}

void Notification::Notify() {
  absl::MutexLock lock(&mutex_);
  notified_ = true;
  changed_.SignalAll();
}

bool Notification::WaitFor(Duration limit) const {
  const MonotonicTime now = Clock::now();
  const MonotonicTime until =
      limit < MonotonicTime::max() - now ? now + limit : MonotonicTime::max();
  absl::MutexLock lock(&mutex_);
  while (!notified_)
    if (changed_.WaitUntil(&mutex_, until)) break;
  return notified_;
}

}  // namespace muster
