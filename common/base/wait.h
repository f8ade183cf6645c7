// Waits with a limit, on monotonic time: abseil's own (CondVar::WaitWithTimeout, Mutex::Await-
// WithTimeout, Notification) end by the wall clock, so that a step of it backwards by an hour makes
// a heartbeat an hour late. tests/lint/waits.py keeps those out.
//
// In place of absl::CondVar, with absl::Mutex and its annotations as ever.
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

  // REQUIRES: `mutex` is held, and held again when they return. They may return without a signal.
  void Wait(absl::Mutex* mutex) { WaitUntil(mutex, MonotonicTime::max()); }
  // True where the time is over.
  bool WaitFor(absl::Mutex* mutex, Duration limit);
  bool WaitUntil(absl::Mutex* mutex, MonotonicTime until);

  void Signal() { variable_.notify_one(); }
  void SignalAll() { variable_.notify_all(); }

 private:
  std::condition_variable_any variable_;
};

// Happens once.
class Notification {
 public:
  Notification() = default;
  // Waits for a Notify that is under way.
  ~Notification() { absl::MutexLock lock(&mutex_); }

  void Notify();
  bool HasBeenNotified() const;
  // True if it has happened by then.
  bool WaitFor(Duration limit) const;

 private:
  mutable absl::Mutex mutex_;
  mutable CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
