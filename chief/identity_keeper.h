// Writes the run's identity to model_dir on a thread of its own: a disk that is slow, or does not
// answer at all, holds up no decision of the coordinator.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "muster/status.h"

namespace muster {

// Start is for one thread.
class IdentityKeeper {
 public:
  using Keep = std::function<absl::Status(const std::string& run_id, uint32_t epoch)>;
  struct Result {
    std::string run_id;
    uint32_t epoch = 0;
    absl::Status status;
  };
  // Both run on the keeper's thread. Without `keep` every write succeeds.
  IdentityKeeper(Keep keep, std::function<void(Result)> on_done)
      : keep_(std::move(keep)), on_done_(std::move(on_done)) {}
  ~IdentityKeeper();  // waits for a write under way, and for its `on_done`

  // Begins a write, unless one is under way. Never waits for `on_done`: it may be called with a
  // lock that this takes.
  void Start(const std::string& run_id, uint32_t epoch);

 private:
  const Keep keep_;
  const std::function<void(Result)> on_done_;
  std::atomic<bool> under_way_ = false;
  std::thread thread_;
};

}  // namespace muster
