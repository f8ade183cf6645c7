// Monotonic time. All deadlines and timeouts of Muster use monotonic time, not the wall clock.
// The clocks of two hosts differ, so messages between hosts contain durations instead of
// times.
#pragma once

#include <chrono>
#include <cstdint>

namespace muster {

using Clock = std::chrono::steady_clock;
using MonotonicTime = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline int64_t Milliseconds(Duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}
// Rounds to the nearest tick of Duration. FromSeconds(Seconds(d)) equals d for every d below 26
// days.
inline Duration FromSeconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

// Returns the wall time in seconds since 1970, for display and records. No decision depends on it.
inline double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace muster
