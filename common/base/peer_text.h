// Sanitizes text that a peer sent, before this process logs, stores or forwards it. The sanitized
// text cannot forge a log line, move the cursor of a terminal or fill the disk. LogRateLimiter
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

// Returns `text` as valid UTF-8 without control characters. If the result would be longer than
// `max_bytes` bytes, cuts it at `max_bytes` and appends "...". A line break becomes the two
// characters "\n", and a tab becomes a space. Other control characters, and characters that change
// the direction of writing, become escapes such as "\x1b".
std::string SanitizePeerText(std::string_view text, size_t max_bytes = kMaxPeerText);

// A token bucket for log lines: it permits `burst` lines without delay, and after them one line per
// `interval`. Thread-safe.
class LogRateLimiter {
 public:
  explicit LogRateLimiter(int burst = 20, Duration interval = std::chrono::seconds(1))
      : burst_(burst), interval_(interval) {}

  // Returns whether the caller may write a line now. If true, sets `*suppressed` to the number of
  // calls that returned false since the last call that returned true.
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
