// Runs the handlers of incoming connections of `muster preflight` on threads. The number of threads
// is bounded, because any host may connect. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::preflight {

class SessionThreads {
 public:
  ~SessionThreads() { Join(); }

  // Runs `call` on a new thread and returns true. If 64 calls are running, returns false and does
  // not run `call`.
  bool Start(std::function<void()> call);
  // Blocks until all calls have returned. After Join, Start must not be called.
  void Join();

 private:
  struct Running {
    std::atomic<bool> done = false;
    std::thread thread;
  };
  void ReapLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::list<std::unique_ptr<Running>> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::preflight
