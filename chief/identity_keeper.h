// Writes the run's identity to model_dir on a thread of its own: a disk that is slow, or does not
// answer at all, holds up no decision of the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "muster/status.h"

namespace muster {

// Start and TakeResult are for one thread.
class IdentityKeeper {
 public:
  using Keep = std::function<absl::Status(const std::string& run_id, uint32_t epoch)>;
  struct Result {
    std::string run_id;
    uint32_t epoch = 0;
    absl::Status status;
  };
  // `keep` and, after a write that succeeded, `wake` run on the keeper's thread. Without `keep`
  // every write succeeds.
  IdentityKeeper(Keep keep, std::function<void()> wake)
      : keep_(std::move(keep)), wake_(std::move(wake)) {}
  ~IdentityKeeper();  // waits for a write under way

  // Begins a write, unless one is under way.
  void Start(const std::string& run_id, uint32_t epoch);
  // Of the last write, once.
  std::optional<Result> TakeResult();

 private:
  const Keep keep_;
  const std::function<void()> wake_;
  std::thread thread_;
  bool under_way_ = false;
  absl::Mutex mu_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
