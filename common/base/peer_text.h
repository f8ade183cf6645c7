// Sanitizes text from a peer for the log, a verdict or a file. The result cannot forge a line, move
// the cursor or fill the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

inline constexpr size_t kMostPeerText = 1024;

// Returns the text as UTF-8 without control characters, truncated to `most` bytes. A line break
// becomes "\n", other control characters become "\x1b" and the like. Characters that change the
// direction of writing are escaped in the same way.
std::string PeerText(std::string_view text, size_t most = kMostPeerText);

// Limits the log lines that peers may cause: `burst` at once, then one per `interval`. Thread-safe.
class LineBudget {
 public:
  explicit LineBudget(int burst = 20, Duration interval = std::chrono::seconds(1))
      : burst_(burst), interval_(interval) {}

  // Returns true if a line may be written now. `left_out` is set to the number of suppressed lines
  // since the previous one.
  bool Take(int64_t* left_out, MonotonicTime now = Clock::now());

 private:
  const int burst_;
  const Duration interval_;
  absl::Mutex mu_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  double tokens_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicTime last_ ABSL_GUARDED_BY(mu_);
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace muster
