// Handles a task's SIGTERM and SIGINT in one thread, so that reactions are ordinary code. The first
// signal requests a stop. A further SIGTERM while the state is saved (from Slurm or a container
// runtime) has no effect. A second SIGINT ends the process at once with 128 + SIGINT, because 143
// would mean that the state is saved. Construct it in main, before any other thread. Lives as long
// as the process.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class StopSignals {
 public:
  // `what` continues the log line "SIGTERM received: ". `unheard` is called if a stop is requested
  // while PassTo has no receiver. Null: the request waits for the next receiver.
  explicit StopSignals(std::string what, std::function<void()> unheard = nullptr);

  // Starts handling signals, including pending ones.
  void Start();
  bool asked();
  // Passes stop requests to this function from now on. Calls it at once if a stop was already
  // requested. Null: passes them to none.
  void PassTo(std::function<void()> stop);

 private:
  void Take();

  void Ask();

  const std::string what_;
  const std::function<void()> unheard_;
  sigset_t signals_;
  absl::Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> stop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
