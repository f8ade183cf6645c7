// How long the chief has been silent, whatever became of the connection to it: what a supervisor
// may judge it by. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "common/base/clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void Heard(MonotonicTime now) { heard_ = now; }
  // This process itself was held up: nobody is judged for that gap.
  void Allow(MonotonicTime now, Duration gap) {
    if (heard_) heard_ = std::min(now, *heard_ + gap);
  }
  // For how long, once when the deadline has passed; zero once it was heard again after that;
  // nullopt: nothing new. A chief that was never heard is not silent.
  std::optional<Duration> News(MonotonicTime now) {
    if (!heard_) return std::nullopt;
    const Duration silence = now - *heard_;
    if ((silence >= deadline_) == told_) return std::nullopt;
    told_ = !told_;
    return told_ ? silence : Duration::zero();
  }

 private:
  const Duration deadline_;
  std::optional<MonotonicTime> heard_;
  bool told_ = false;
};

}  // namespace muster
