// SIGTERM and SIGINT of a task, taken by one thread so that whatever they do is ordinary code. The
// first one asks for a stop. SIGTERM may come again while the state is saved (Slurm, a container's
// runtime) and changes nothing; a second SIGINT ends the process at once with 128 + SIGINT, for 143
// would say that the state is saved. Make it in main, before any thread exists; lives as long as
// the process.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class StopSignals {
 public:
  // `what` continues "SIGTERM received: ". `unheard`: called instead where a stop is passed to
  // nobody; null: it is kept for whom stops are passed to next.
  explicit StopSignals(std::string what, std::function<void()> unheard = nullptr);

  // From here on signals are taken; those that came before are waiting.
  void Start();
  bool asked();
  // From now on a stop is passed on; nullptr: no longer.
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
