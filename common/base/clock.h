// Monotonic time. No decision depends on wall-clock time. Hosts exchange ages as durations.
#pragma once

#include <chrono>

namespace muster {

using Clock = std::chrono::steady_clock;
using MonotonicTime = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Rounds to the nearest tick, so that FromSeconds(Seconds(d)) equals d.
inline Duration FromSeconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace muster
