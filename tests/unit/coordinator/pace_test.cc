#include "chief/coordinator/pace.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace muster::chief {
namespace {

Pace After(std::vector<double> reports, const std::vector<double>& others, Pace pace = {}) {
  for (const double seconds : reports) pace = NextPace({}, pace, seconds, others);
  return pace;
}

TEST(PaceTest, AMuchSlowerMemberIsNamedAtItsFirstReport) {
  const Pace pace = After({0.3}, {0.1, 0.1, 0.12});
  EXPECT_TRUE(pace.straggler);
  EXPECT_DOUBLE_EQ(pace.median_seconds, 0.1);
  EXPECT_NEAR(pace.share, 2.0 / 3, 1e-9);
}

TEST(PaceTest, ASlowerMemberIsNamedAtItsThirdReport) {
  EXPECT_FALSE(After({0.13, 0.13}, {0.1, 0.1}).straggler);
  EXPECT_TRUE(After({0.13, 0.13, 0.13}, {0.1, 0.1}).straggler);
  EXPECT_FALSE(After({0.13, 0.13, 0.1, 0.13, 0.13, 0.1}, {0.1, 0.1}).straggler);
}

TEST(PaceTest, WhatABusyHostMayAddIsNotNamedAtOnce) {
  EXPECT_FALSE(After({0.04, 0.04}, {0.01, 0.01}).straggler);
  EXPECT_TRUE(After({0.04, 0.04, 0.04}, {0.01, 0.01}).straggler);
}

// The delay of `--fault slow` without a value.
TEST(PaceTest, AStepThatIsDelayedBy200MsIsNamedAtItsFirstReport) {
  for (const double step : {0.001, 0.01, 0.05, 0.2})
    EXPECT_TRUE(After({step + 0.2}, {step, step}).straggler) << step;
}

// How often the verdict changes over `reports`.
int Changes(const PaceRules& rules, const std::vector<double>& reports, double others) {
  int changes = 0;
  Pace pace;
  for (const double seconds : reports) {
    const bool before = pace.straggler;
    pace = NextPace(rules, pace, seconds, {others, others});
    changes += pace.straggler != before;
  }
  return changes;
}

// Ten minutes of a host whose other processes delay about a third of the reports, by up to 60 ms.
TEST(PaceTest, ANoisyPaceDoesNotFlip) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform;
  std::vector<double> noisy, slow;
  for (int i = 0; i < 600; ++i) {
    const double noise = uniform(random) < 0.33 ? 0.06 * uniform(random) : 0;
    noisy.push_back(0.02 + noise);
    // Slower than the others for good, but for one report in four.
    slow.push_back(uniform(random) < 0.25 ? 0.02 : 0.04 + noise);
  }
  const PaceRules hasty{.reports = 2, .clear_seconds = 0, .reports_after = 2};
  EXPECT_GT(Changes(hasty, noisy, 0.02), 60);
  EXPECT_LE(Changes({}, noisy, 0.02), 30);
  EXPECT_GT(Changes(hasty, slow, 0.02), 20);
  EXPECT_LE(Changes({}, slow, 0.02), 3);
}

TEST(PaceTest, SmallDifferencesCountNeitherInShareNorInTime) {
  EXPECT_FALSE(After({0.11, 0.11, 0.11}, {0.1}).straggler);
  EXPECT_FALSE(After({0.003, 0.003, 0.003}, {0.001}).straggler) << "2 ms are noise";
  EXPECT_TRUE(After({0.007, 0.007, 0.007}, {0.001}).straggler);
}

TEST(PaceTest, TheOthersAreNotStragglers) {
  EXPECT_FALSE(After({0.1, 0.1, 0.1}, {0.1, 0.3}).straggler);
  EXPECT_FALSE(After({0.1, 0.1}, {0.3}).straggler);
}

TEST(PaceTest, OfTwoMembersTheSlowerOneIsNamed) { EXPECT_TRUE(After({0.3}, {0.1}).straggler); }

TEST(PaceTest, OneOfTwoGroupsHoldsUpTheOther) {
  // With an even number of others, the median is between the two in the middle.
  EXPECT_DOUBLE_EQ(After({0.3}, {0.1, 0.3}).median_seconds, 0.2);
}

TEST(PaceTest, AStragglerIsNoneAfterFiveGoodReports) {
  const Pace slow = After({0.3}, {0.1});
  EXPECT_TRUE(After({0.1, 0.1, 0.1, 0.1}, {0.1}, slow).straggler);
  EXPECT_FALSE(After({0.1, 0.1, 0.1, 0.1, 0.1}, {0.1}, slow).straggler);
  EXPECT_TRUE(After({0.1, 0.1, 0.1, 0.1, 0.13, 0.1, 0.1, 0.1, 0.1}, {0.1}, slow).straggler);
  // Between the limits it stays what it is.
  EXPECT_TRUE(After({0.118, 0.118, 0.118}, {0.1}, slow).straggler);
}

TEST(PaceTest, UnknownTimesDecideNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(After({0.3}, {}).straggler);
  EXPECT_FALSE(After({0.3}, {0, 0, -1, nan}).straggler);
  EXPECT_TRUE(After({0.3}, {0, 0.1, nan}).straggler);
  EXPECT_FALSE(After({nan}, {0.1}).straggler);
  EXPECT_FALSE(After({0}, {0.1}, After({0.3}, {0.1})).straggler) << "it has restarted";
}

}  // namespace
}  // namespace muster::chief
