// Sanitizes text that a peer sent, before it is written to the log, a verdict or a file. The
// sanitized text cannot forge a log line, move the cursor of a terminal or fill the disk. Also
// limits the number of log lines that peers cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

inline constexpr size_t kMaxPeerText = 1024;

// Returns `text` as valid UTF-8 without control characters, cut to at most `max_bytes` bytes. Cut
// text ends with "...". A line break becomes the two characters "\n", and a tab becomes a space.
// Other control characters become escapes such as "\x1b", and so do characters that change the
// direction of writing.
std::string SanitizePeerText(std::string_view text, size_t max_bytes = kMaxPeerText);

// A token bucket for log lines: it permits `burst` lines at once, then one line per `interval`.
// Thread-safe.
class LogRateLimiter {
 public:
  explicit LogRateLimiter(int burst = 20, Duration interval = std::chrono::seconds(1))
      : burst_(burst), interval_(interval) {}

  // Returns whether the caller may write a line now. If so, sets `*left_out` to the number of lines
  // that were suppressed since the last permitted one.
  bool Take(int64_t* suppressed, MonotonicTime now = Clock::now());

 private:
  const int burst_;
  const Duration interval_;
  absl::Mutex mu_;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  double tokens_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicTime last_ ABSL_GUARDED_BY(mu_);
  int64_t suppressed_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace muster
