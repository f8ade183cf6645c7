// Waits in tests for what other threads do.
#pragma once

#include <thread>

#include "common/base/clock.h"

namespace muster::testing_support {

// Blocks until `condition` returns true, for at most a minute, which is far above what a test
// needs. Returns whether it did.
template <typename Condition>
bool Becomes(const Condition& condition) {
  const MonotonicTime end = Clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace muster::testing_support
