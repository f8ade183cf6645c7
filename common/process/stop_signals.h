// Handles SIGTERM and SIGINT on a dedicated thread, so that the handler may call any function. The
// first signal requests a stop. The task then saves its state and exits with 143. Further SIGTERM
// signals have no effect, because Slurm and container runtimes may send several during the save. A
// second SIGINT ends the process at once with exit code 130 (128 + SIGINT).
//
// main constructs the object before any other thread starts. The object must live as long as the
// process.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class StopSignals {
 public:
  // `what` is the end of the log line "SIGTERM received: <what>". `on_unhandled` is called if a
  // signal requests a stop before SetHandler has set a handler. If `on_unhandled` is null, the next
  // call of SetHandler passes the request to the new handler.
  explicit StopSignals(std::string what, std::function<void()> on_unhandled = nullptr);

  // Starts the thread. The thread also handles signals that arrived after the construction.
  void Start();
  // Returns true after the first signal.
  bool requested();
  // Sets the handler of stop requests. Calls `stop` at once if a stop was already requested. A null
  // `stop` removes the handler.
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
