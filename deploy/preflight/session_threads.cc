#include "deploy/preflight/session_threads.h"

#include <utility>

namespace muster::preflight {

bool SessionThreads::Start(std::function<void()> call) {
  absl::MutexLock lock(&mu_);
  ReapLocked();
  constexpr size_t kMost = 64;
  if (running_.size() >= kMost) return false;
  running_.push_back(std::make_unique<Running>());
  Running* running = running_.back().get();
  running->thread = std::thread([running, call = std::move(call)] {
    call();
    running->done = true;
  });
  return true;
}

void SessionThreads::ReapLocked() {
  running_.remove_if([](const std::unique_ptr<Running>& running) {
    if (!running->done) return false;
    running->thread.join();
    return true;
  });
}

void SessionThreads::Join() {
  std::list<std::unique_ptr<Running>> running;
  {
    absl::MutexLock lock(&mu_);
    running.swap(running_);
  }
  for (const auto& one : running) one->thread.join();
}

}  // namespace muster::preflight
