#include "common/base/pausing_clock.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonotonicTime kStart = MonotonicTime() + seconds(1000);

TEST(PausingClock, RunsWhileItIsLookedAt) {
  PausingClock clock(seconds(1), kStart);
  const PausingTime before = clock.At(kStart);
  for (int i = 1; i <= 50; ++i) clock.At(kStart + milliseconds(100 * i));
  EXPECT_EQ(clock.At(kStart + seconds(5)) - before, seconds(5));
  EXPECT_EQ(clock.TakePause(), Duration::zero());
}

TEST(PausingClock, PausesOverAStall) {
  PausingClock clock(seconds(1), kStart);
  const PausingTime before = clock.At(kStart);
  clock.At(kStart + milliseconds(900));
  // Stopped for a minute: nothing that was 0.9 s old has grown older.
  EXPECT_EQ(clock.At(kStart + milliseconds(60900)) - before, milliseconds(900));
  EXPECT_EQ(clock.TakePause(), seconds(60));
  EXPECT_EQ(clock.TakePause(), Duration::zero()) << "reported once";
  EXPECT_EQ(clock.At(kStart + milliseconds(61000)) - before, seconds(1)) << "and it runs on";
}

TEST(PausingClock, AStallBeginsAtItsLimit) {
  PausingClock clock(seconds(1), kStart);
  const PausingTime before = clock.At(kStart);
  EXPECT_EQ(clock.At(kStart + milliseconds(999)) - before, milliseconds(999));
  EXPECT_EQ(clock.At(kStart + milliseconds(1999)) - before, milliseconds(999));
}

TEST(PausingClock, NeverRunsBackwards) {
  PausingClock clock(seconds(1), kStart);
  const PausingTime later = clock.At(kStart + milliseconds(500));
  EXPECT_EQ(clock.At(kStart + milliseconds(200)), later);
  EXPECT_EQ(clock.At(kStart + milliseconds(600)) - later, milliseconds(100));
}

}  // namespace
}  // namespace muster
