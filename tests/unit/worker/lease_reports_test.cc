#include "worker/parameter_server/lease_reports.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(BatchPace, LeasesWhatTakesATenthOfASecond) {
  using std::chrono::milliseconds;
  const auto after = [](std::vector<int> each) {
    BatchPace pace;
    MonotonicTime now = MonotonicTime() + milliseconds(1);
    for (const int ms : each) pace.Completed(now += milliseconds(ms));
    return pace.together();
  };
  EXPECT_EQ(BatchPace().together(), 1) << "nothing is known yet";
  EXPECT_EQ(after(std::vector<int>(50, 1)), 16);
  EXPECT_EQ(after(std::vector<int>(50, 30)), 3);
  EXPECT_EQ(after(std::vector<int>(50, 60)), 1);
  EXPECT_EQ(after(std::vector<int>(50, 5000)), 1);
  std::vector<int> paused(50, 10);
  paused.push_back(3000);
  EXPECT_EQ(after(paused), 1);
  paused.insert(paused.end(), 50, 10);
  EXPECT_GE(after(paused), 9);
}

}  // namespace
}  // namespace muster::worker
