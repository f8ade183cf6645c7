// Monotonic time. Decisions never use the wall clock. The clocks of two hosts differ, so hosts send
// each other durations instead of times.
#pragma once

#include <chrono>

namespace muster {

using Clock = std::chrono::steady_clock;
using MonotonicTime = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Rounds to the nearest tick. FromSeconds(Seconds(d)) therefore equals d.
inline Duration FromSeconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace muster
