// Aborts communicators on a thread of its own: an abort that does not come back (a GPU that hangs)
// must keep nobody from sending heartbeats, nor from noticing that it does not.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/communicator.h"

namespace muster {

class Aborter {
 public:
  Aborter() : thread_([this] { Run(); }) {}
  ~Aborter();  // Waits for the aborts under way.

  // Any thread; returns at once.
  void Abort(std::vector<std::shared_ptr<Communicator>> communicators, const absl::Status& why);

 private:
  void Run();

  absl::Mutex mu_;
  std::vector<std::pair<std::shared_ptr<Communicator>, absl::Status>> queue_ ABSL_GUARDED_BY(mu_);
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster
