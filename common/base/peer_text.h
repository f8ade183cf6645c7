// Text that came from a peer, on its way into the log, a verdict or a file: it forges no line,
// moves no cursor, and fills no disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {

inline constexpr size_t kMostPeerText = 1024;

// As UTF-8, without control characters (a line break becomes "\n", others "\x1b"; those that change
// the direction of writing likewise), and cut to `most` bytes.
std::string PeerText(std::string_view text, size_t most = kMostPeerText);

// How many lines peers may cause: `burst` at once, then one in each `interval`. Any thread.
class LineBudget {
 public:
  explicit LineBudget(int burst = 20, Duration interval = std::chrono::seconds(1))
      : burst_(burst), interval_(interval) {}

  // Whether a line may be written now. `left_out`: how many were not, since the one before.
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
