// Monotonic time. All deadlines and timeouts of Muster use monotonic time, and none uses the wall
// clock. The clocks of two hosts differ, so messages between hosts contain durations instead of
// times.
#pragma once

#include <chrono>

namespace muster {

using Clock = std::chrono::steady_clock;
using MonotonicTime = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Rounds to the nearest tick of Duration. FromSeconds(Seconds(d)) equals d for every d below 26
// days.
inline Duration FromSeconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace muster
