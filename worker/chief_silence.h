// How long the chief has been silent, whatever became of the connection to it: what a supervisor
// may judge it by. Pure.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void Heard(PausingTime now) { heard_ = now; }
  // For how long, once when the deadline has passed; zero once it was heard again after that;
  // nullopt: nothing new. A chief that was never heard is not silent.
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
