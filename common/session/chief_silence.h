// Measures the time since the last message of the chief, in any state of the connection. The result
// is for the supervisor. Reads no clock and does no I/O.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void Heard(PausingTime now) { heard_ = now; }
  // Returns the length of the silence once when it reaches the deadline. Returns zero once when a
  // message arrives after such a silence. Returns nullopt otherwise, and before the first message
  // of the chief.
  std::optional<Duration> News(PausingTime now) {
    if (!heard_) return std::nullopt;
    const Duration silence = now - *heard_;
    if ((silence >= deadline_) == told_) return std::nullopt;
    told_ = !told_;
    return told_ ? silence : Duration::zero();
  }

 private:
  Duration deadline_;
  std::optional<PausingTime> heard_;
  bool told_ = false;
};

}  // namespace muster
