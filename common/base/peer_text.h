// Sanitizes text that a peer sent, before it goes to the log, a verdict or a file. The result
// cannot forge a line, move the cursor or fill the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

inline constexpr size_t kMostPeerText = 1024;

// Returns valid UTF-8 without control characters. Longer text is cut to at most `most` bytes and
// ends with "...". A line break becomes the two characters "\n", a tab becomes a space, and another
// control character becomes "\x1b" and the like. Characters that change the direction of writing
// are escaped in the same way.
std::string PeerText(std::string_view text, size_t most = kMostPeerText);

// Limits the log lines that peers can cause: at most `burst` at once, later one per `interval`.
// Thread-safe.
class LineBudget {
 public:
  explicit LineBudget(int burst = 20, Duration interval = std::chrono::seconds(1))
      : burst_(burst), interval_(interval) {}

  // Returns true if the caller may write a line now, and sets `left_out` to the number of lines
  // that were suppressed since the previous true result.
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
