#include "chief/coordinator/pace.h"

#include <gtest/gtest.h>

#include <limits>

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

TEST(PaceTest, ASlowerMemberIsNamedAtItsSecondReport) {
  EXPECT_FALSE(After({0.13}, {0.1, 0.1}).straggler);
  EXPECT_TRUE(After({0.13, 0.13}, {0.1, 0.1}).straggler);
  EXPECT_FALSE(After({0.13, 0.1, 0.13, 0.1}, {0.1, 0.1}).straggler);
}

TEST(PaceTest, SmallDifferencesCountNeitherInShareNorInTime) {
  EXPECT_FALSE(After({0.11, 0.11, 0.11}, {0.1}).straggler);
  EXPECT_FALSE(After({0.003, 0.003, 0.003}, {0.001}).straggler) << "2 ms are noise";
  EXPECT_TRUE(After({0.007}, {0.001}).straggler);
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

TEST(PaceTest, AStragglerIsNoneAfterTwoGoodReports) {
  const Pace slow = After({0.3}, {0.1});
  EXPECT_TRUE(After({0.1}, {0.1}, slow).straggler);
  EXPECT_FALSE(After({0.1, 0.1}, {0.1}, slow).straggler);
  EXPECT_TRUE(After({0.1, 0.3, 0.1}, {0.1}, slow).straggler);
  // Between the limits it stays what it is.
  EXPECT_TRUE(After({0.118, 0.118, 0.118}, {0.1}, slow).straggler);
}

TEST(PaceTest, UnknownTimesDecideNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(After({0.3}, {}).straggler);
  EXPECT_FALSE(After({0.3}, {0, 0, -1, nan}).straggler);
  EXPECT_TRUE(After({0.3}, {0, 0.1, nan}).straggler);
  EXPECT_FALSE(After({nan}, {0.1}).straggler);
  EXPECT_FALSE(After({0}, {0.1}, After({0.3}, {0.1})).straggler) << "it has begun anew";
}

}  // namespace
}  // namespace muster::chief
