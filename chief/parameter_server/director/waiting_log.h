// A WaitingLog logs why the Director waits, at most once in ten seconds. Used only by the thread of
// Director::Run.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/logging.h"

namespace muster::chief {

class WaitingLog {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(10);

  // Logs nothing for the next interval.
  void Pause() { next_ = Clock::now() + kInterval; }
  void Log(const std::string& what) {
    if (Clock::now() < next_) return;
    Pause();
    LogInfo("the chief waits for {}", what);
  }

 private:
  MonotonicTime next_;
};

}  // namespace muster::chief
