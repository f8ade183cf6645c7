// Monotonic time. Wall-clock time never decides anything; ages travel between hosts as durations.
#pragma once

#include <chrono>

namespace muster {

using Clock = std::chrono::steady_clock;
using MonotonicTime = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// To the nearest tick, so that FromSeconds(Seconds(d)) is d.
inline Duration FromSeconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace muster
