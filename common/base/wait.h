// A condition variable and a notification with timeouts on the monotonic clock. The waits of abseil
// (CondVar::WaitWithTimeout, Mutex::AwaitWithTimeout, Notification) use the wall clock. If the wall
// clock is set back by an hour, such a wait ends an hour late. tests/lint/waits.py forbids these
// waits of abseil.
#pragma once

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

// Replaces absl::CondVar. Works with absl::Mutex and its thread annotations.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Each of the three waits releases `mutex`, blocks, and locks `mutex` again before it returns. A
  // wait may return without a signal. REQUIRES: `mutex` is held.
  void Wait(absl::Mutex* mutex) { WaitUntil(mutex, MonotonicTime::max()); }
  // WaitFor and WaitUntil return true after a timeout: `limit` has passed, or the time `until` is
  // reached. Otherwise, they return false.
  bool WaitFor(absl::Mutex* mutex, Duration limit);
  bool WaitUntil(absl::Mutex* mutex, MonotonicTime until);

  void Signal() { variable_.notify_one(); }
  void SignalAll() { variable_.notify_all(); }

 private:
  std::condition_variable_any variable_;
};

// An event that occurs once. Thread-safe.
class Notification {
 public:
  Notification() = default;
  // Blocks while a call of Notify is running.
  ~Notification() { absl::MutexLock lock(&mutex_); }

  void Notify();
  // Blocks until the event occurs, but at most for `limit`. Returns whether the event occurred.
  bool WaitFor(Duration limit) const;

 private:
  mutable absl::Mutex mutex_;
  mutable CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
