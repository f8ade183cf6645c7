// Waits with a timeout on monotonic time. abseil's own waits (CondVar::WaitWithTimeout,
// Mutex::AwaitWithTimeout, Notification) use the wall clock. If it steps back by an hour, a
// heartbeat comes an hour late. tests/lint/waits.py forbids them.
//
// Replaces absl::CondVar, with absl::Mutex and its annotations unchanged.
#pragma once

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // REQUIRES: `mutex` is held. It is held again on return. May return without a signal.
  void Wait(absl::Mutex* mutex) { WaitUntil(mutex, MonotonicTime::max()); }
  // Returns true if the timeout passed.
  bool WaitFor(absl::Mutex* mutex, Duration limit);
  bool WaitUntil(absl::Mutex* mutex, MonotonicTime until);

  void Signal() { variable_.notify_one(); }
  void SignalAll() { variable_.notify_all(); }

 private:
  std::condition_variable_any variable_;
};

// A one-time event.
class Notification {
 public:
  Notification() = default;
  // Blocks until a running Notify has returned.
  ~Notification() { absl::MutexLock lock(&mutex_); }

  void Notify();
  bool HasBeenNotified() const;
  // Returns true if the event occurred within `limit`.
  bool WaitFor(Duration limit) const;

 private:
  mutable absl::Mutex mutex_;
  mutable CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
