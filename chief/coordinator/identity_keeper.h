// Writes the run's identity to model_dir on its own thread, so that a slow or unresponsive disk
// does not delay the coordinator's decisions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "muster/status.h"

namespace muster {

// Only one thread may call Start.
class IdentityKeeper {
 public:
  using Keep = std::function<absl::Status(const std::string& run_id, uint32_t epoch)>;
  struct Result {
    std::string run_id;
    uint32_t epoch = 0;
    absl::Status status;
  };
  // Both functions run on the keeper's thread. Without `keep` every write succeeds.
  IdentityKeeper(Keep keep, std::function<void(Result)> on_done)
      : keep_(std::move(keep)), on_done_(std::move(on_done)) {}
  ~IdentityKeeper();  // Waits for the current write and its `on_done`.

  // Starts a write unless one is in progress. Never waits for `on_done`, so it may be called with a
  // lock that `on_done` takes.
  void Start(const std::string& run_id, uint32_t epoch);

 private:
  const Keep keep_;
  const std::function<void(Result)> on_done_;
  std::atomic<bool> under_way_ = false;
  std::thread thread_;
};

}  // namespace muster
