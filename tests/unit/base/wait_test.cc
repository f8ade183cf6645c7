#include "common/base/wait.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

// Every wait with a limit comes by here, with the clock that ends it. The thread sanitizer has the
// symbols itself.
namespace {
std::atomic<int> by_monotonic_time = 0, by_wall_clock = 0;
}
#ifndef __SANITIZE_THREAD__
extern "C" int pthread_cond_clockwait(pthread_cond_t* variable, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* until) {
  static const auto real = reinterpret_cast<decltype(&pthread_cond_clockwait)>(
      dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  ++(clock == CLOCK_MONOTONIC ? by_monotonic_time : by_wall_clock);
  return real(variable, mutex, clock, until);
}
extern "C" int pthread_cond_timedwait(pthread_cond_t* variable, pthread_mutex_t* mutex,
                                      const timespec* until) {
  static const auto real = reinterpret_cast<decltype(&pthread_cond_timedwait)>(
      dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
  ++by_wall_clock;
  return real(variable, mutex, until);
}
#endif

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Shared {
  absl::Mutex mutex;
  CondVar changed;
  bool set ABSL_GUARDED_BY(mutex) = false;
};

TEST(CondVar, ASignalEndsAWait) {
  Shared shared;
  std::thread other([&shared] {
    absl::MutexLock lock(&shared.mutex);
    shared.set = true;
    shared.changed.SignalAll();
  });
  {
    absl::MutexLock lock(&shared.mutex);
    while (!shared.set) ASSERT_FALSE(shared.changed.WaitFor(&shared.mutex, seconds(60)));
    shared.mutex.AssertHeld();
  }
  other.join();
}

TEST(CondVar, TheTimeEndsAWait) {
  Shared shared;
  const MonotonicTime start = Clock::now();
  absl::MutexLock lock(&shared.mutex);
  while (!shared.changed.WaitFor(&shared.mutex, milliseconds(50))) {
  }
  EXPECT_GE(Clock::now() - start, milliseconds(50));
  while (!shared.changed.WaitUntil(&shared.mutex, start + milliseconds(100))) {
  }
  EXPECT_GE(Clock::now() - start, milliseconds(100));
  EXPECT_TRUE(shared.changed.WaitUntil(&shared.mutex, start)) << "which is over";
  EXPECT_TRUE(shared.changed.WaitFor(&shared.mutex, -seconds(1)));
  shared.mutex.AssertHeld();
}

TEST(CondVar, TheLongestLimitIsForEver) {
  Shared shared;
  std::thread other([&shared] {
    absl::MutexLock lock(&shared.mutex);
    shared.set = true;
    shared.changed.Signal();
  });
  {
    absl::MutexLock lock(&shared.mutex);
    while (!shared.set) ASSERT_FALSE(shared.changed.WaitFor(&shared.mutex, Duration::max()));
  }
  other.join();
}

// A step of the wall clock therefore makes no wait longer or shorter.
TEST(CondVar, AWaitEndsByTheMonotonicClock) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has the symbols itself";
#endif
  by_monotonic_time = by_wall_clock = 0;
  Shared shared;
  {
    absl::MutexLock lock(&shared.mutex);
    shared.changed.WaitFor(&shared.mutex, milliseconds(1));
    shared.changed.WaitUntil(&shared.mutex, Clock::now() + milliseconds(1));
  }
  EXPECT_FALSE(Notification().WaitFor(milliseconds(1)));
  EXPECT_GE(by_monotonic_time, 3);
  EXPECT_EQ(by_wall_clock, 0);
}

TEST(Notification, IsWaitedForAtMostSoLong) {
  Notification notification;
  EXPECT_FALSE(notification.WaitFor(Duration::zero()));
  EXPECT_FALSE(notification.WaitFor(milliseconds(20)));
  std::thread other([&notification] { notification.Notify(); });
  EXPECT_TRUE(notification.WaitFor(seconds(60)));
  EXPECT_TRUE(notification.WaitFor(Duration::zero()));
  other.join();
}

}  // namespace
}  // namespace muster
