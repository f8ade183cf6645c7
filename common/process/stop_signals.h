// Handles a task's SIGTERM and SIGINT on its own thread, so that handlers may call any function.
// The first signal requests a stop. A second SIGTERM, which Slurm and container runtimes may send
// while the state is saved, has no effect. A second SIGINT ends the process at once with exit code
// 128 + SIGINT. It does not use 143, because 143 means that the state was saved. Construct the
// object in main before any other thread starts. The object must live as long as the process.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class StopSignals {
 public:
  // `what` completes the log line "SIGTERM received: ". `on_unhandled` is called if a stop is
  // requested while no receiver is set (SetHandler). If `on_unhandled` is null, the request waits
  // for the next receiver.
  explicit StopSignals(std::string what, std::function<void()> on_unhandled = nullptr);

  // Starts to handle signals, including pending ones.
  void Start();
  bool requested();
  // Sets the receiver of stop requests. Calls `stop` at once if a stop was already requested. Null
  // removes the receiver.
  void SetHandler(std::function<void()> stop);

 private:
  void Take();

  void Ask();

  const std::string what_;
  const std::function<void()> on_unhandled_;
  sigset_t signals_;
  absl::Mutex mutex_;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> stop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
