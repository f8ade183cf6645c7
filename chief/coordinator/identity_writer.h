// IdentityWriter writes the run's identity to model_dir on a thread of its own. A slow disk
// therefore does not delay the coordinator's decisions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "muster/status.h"

namespace muster::chief {

// Only one thread may call Start.
class IdentityWriter {
 public:
  using WriteFunction = std::function<absl::Status(const std::string& run_id, uint32_t term)>;
  struct Result {
    std::string run_id;
    uint32_t term = 0;
    absl::Status status;
  };
  // `keep` and `on_done` run on the keeper's thread. A null `keep` counts as a write that succeeds.
  IdentityWriter(WriteFunction keep, std::function<void(Result)> on_done)
      : write_(std::move(keep)), on_done_(std::move(on_done)) {}
  ~IdentityWriter();  // Blocks until the current write and its `on_done` have returned.

  // Starts a write unless one is in progress. Never waits for `on_done`, so the caller may hold a
  // lock that `on_done` acquires.
  void Start(const std::string& run_id, uint32_t term);

 private:
  const WriteFunction write_;
  const std::function<void(Result)> on_done_;
  std::atomic<bool> under_way_ = false;
  std::thread thread_;
};

}  // namespace muster::chief
