// A monotonic clock that stops while this process does not run (SIGSTOP, a suspended virtual
// machine, an overloaded host). Deadlines for messages of peers use this clock, because this
// process cannot receive messages during such a pause. The compiler refuses to mix time points of
// PausingClock and of Clock, because their types differ.
//
// The clock counts a gap of at least `stall` between two calls of Now() as a pause. The owner must
// therefore call Now() several times in every interval of length `stall`. Not thread-safe: the
// owner's mutex guards the clock. Tests call At() with times of their own.
#pragma once

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace muster {

class PausingClock {
 public:
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<PausingClock, duration>;
  static constexpr bool is_steady = true;

  explicit PausingClock(Duration stall = std::chrono::seconds(1),
                        MonotonicTime start = Clock::now())
      : stall_(stall), seen_(start), now_(start.time_since_epoch()) {}

  // REQUIRES: the owner's mutex is held.
  time_point Now() { return At(Clock::now()); }
  // As Now, but for the time `now`. If `now` is before the time of an earlier call, the clock does
  // not move. This happens if a thread reads Clock and then waits for the mutex.
  time_point At(MonotonicTime now) {
    const Duration gap = std::max(now - seen_, Duration::zero());
    seen_ += gap;
    if (gap >= stall_) {
      paused_ += gap;
    } else {
      now_ += gap;
    }
    return now_;
  }
  // Returns the total length of the pauses since the previous call of TakePause, for the log.
  Duration TakePause() { return std::exchange(paused_, Duration::zero()); }

 private:
  Duration stall_;
  MonotonicTime seen_;
  time_point now_;
  Duration paused_ = Duration::zero();
};

using PausingTime = PausingClock::time_point;

}  // namespace muster
