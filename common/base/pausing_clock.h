// A monotonic clock that pauses while this process does not run (SIGSTOP, a suspended virtual
// machine, an overloaded host). Peers are therefore not judged for a time in which this process
// could not receive their messages. Points in time of this clock need no correction after a stall.
// They have a separate type, which prevents mixing them with those of Clock.
//
// A gap of `stall` or more between two calls means that the process did not run. The owner must
// therefore call the clock several times within `stall`. Guarded by its owner's mutex. Tests pass
// the time as an argument.
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
  // A `now` before an earlier one, from a thread that waited for the mutex, counts as the earlier
  // one.
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
  // Returns the length of pauses since the last call, for the log.
  Duration TakePause() { return std::exchange(paused_, Duration::zero()); }

 private:
  Duration stall_;
  MonotonicTime seen_;
  time_point now_;
  Duration paused_ = Duration::zero();
};

using PausingTime = PausingClock::time_point;

}  // namespace muster
