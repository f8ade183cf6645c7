// Measures how long the chief has been silent, whatever the state of the connection to it. A
// supervisor may use this to judge the chief. Reads no clock and does no I/O.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void Heard(PausingTime now) { heard_ = now; }
  // Returns the silence once when it has reached the deadline, and zero once when the chief was
  // heard again. Returns nullopt otherwise. A chief that was never heard does not count as silent.
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
