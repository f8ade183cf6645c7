// Makes several calls in parallel on new threads. FanOut suits calls that take far longer than
// starting a thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "muster/status.h"

namespace muster {

// Runs call(0), call(1), ... call(count - 1) on up to `threads` threads. `call` must be thread-safe
// and return an absl::Status. Blocks until all threads have ended. Returns OK, or the error of one
// of the failed calls. A thread ends after its first failed call, so some calls may not be made. If
// `threads` is at least `count`, every call is made.
template <typename Call>
absl::Status FanOut(size_t count, size_t threads, const Call& call) {
  std::atomic<size_t> next = 0;
  std::vector<absl::Status> results(std::min(count, threads));
  std::vector<std::thread> running;
  for (absl::Status& result : results)
    running.emplace_back([&] {
      for (size_t i = next++; i < count && result.ok(); i = next++) result = call(i);
    });
  for (std::thread& thread : running) thread.join();
  for (const absl::Status& result : results) MUSTER_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace muster
