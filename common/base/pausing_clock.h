// A monotonic clock that pauses while this process is held up (SIGSTOP, a suspended virtual
// machine, an overloaded host): nobody can be judged for a time in which the judge itself did not
// run. What is kept as points in time of this clock needs no correction after such a stall, and a
// type of its own keeps them apart from those of Clock.
//
// Two looks at it that are `stall` or more apart mean that the process did not run in between, so
// its owner looks at it several times within `stall`, whatever happens. Guarded by its owner's
// mutex. Tests move it by argument.
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

  // REQUIRES: the owner's mutex.
  time_point Now() { return At(Clock::now()); }
  // A `now` before an earlier one, from a thread that waited for the mutex, counts as that one.
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
  // How long it has paused since the last call of this: for a line in the log.
  Duration TakePause() { return std::exchange(paused_, Duration::zero()); }

 private:
  Duration stall_;
  MonotonicTime seen_;
  time_point now_;
  Duration paused_ = Duration::zero();
};

using PausingTime = PausingClock::time_point;

}  // namespace muster
