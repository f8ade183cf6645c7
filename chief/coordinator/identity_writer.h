// IdentityWriter writes the run's identity to model_dir: the run id and the chief's term (a number
// above the terms of all earlier owners of the model_dir). It uses a thread of its own, so a slow
// disk does not delay the coordinator's decisions.
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
  // `write` writes the identity. `on_done` receives the result. Both are called on this object's
  // thread. If `write` is null, each write succeeds.
  IdentityWriter(WriteFunction write, std::function<void(Result)> on_done)
      : write_(std::move(write)), on_done_(std::move(on_done)) {}
  ~IdentityWriter();  // Blocks until the current write and its `on_done` have returned.

  // Starts a write. Has no effect while another write is in progress. Does not wait for `on_done`,
  // so the caller may hold a lock that `on_done` acquires.
  void Start(const std::string& run_id, uint32_t term);

 private:
  const WriteFunction write_;
  const std::function<void(Result)> on_done_;
  std::atomic<bool> under_way_ = false;
  std::thread thread_;
};

}  // namespace muster::chief
