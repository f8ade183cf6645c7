#include "common/summary/histogram.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace muster::summary {
namespace {

using testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

TEST(DistributionOf, CountsEachValueOnce) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0.5, 3);
  std::vector<double> values(100000);
  for (double& value : values) value = normal(random);
  const Distribution d = DistributionOf(values);
  EXPECT_EQ(d.count, 100000);
  EXPECT_EQ(std::accumulate(d.counts.begin(), d.counts.end(), 0.0), 100000);
  ASSERT_EQ(d.limits.size(), d.counts.size());
  EXPECT_EQ(d.min, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(d.max, *std::max_element(values.begin(), values.end()));
  EXPECT_DOUBLE_EQ(d.sum, std::accumulate(values.begin(), values.end(), 0.0));
  for (size_t i = 0; i < d.limits.size(); ++i) {
    const double low = i == 0 ? -kInfinity : d.limits[i - 1], high = d.limits[i];
    ASSERT_LT(low, high);
    ASSERT_EQ(d.counts[i], std::count_if(values.begin(), values.end(),
                                         [&](double v) { return low <= v && v < high; }));
  }
}

TEST(DistributionOf, HasBucketsOfTenPercent) {
  const Distribution d = DistributionOf({1, 1.05, 5});
  // The 1, the 1.05, nothing, the 5.
  ASSERT_THAT(d.counts, ElementsAre(1, 1, 0, 1));
  EXPECT_NEAR(d.limits[1] / d.limits[0], 1.1, 1e-12);
  EXPECT_NEAR(d.limits[3] / d.limits[2], 1.1, 1e-12);
  EXPECT_THAT(DistributionOf({-1e-3, -1.01e-3}).counts, ElementsAre(2));
}

TEST(DistributionOf, KnowsZeroAndTheEnds) {
  const Distribution zeros = DistributionOf({0, -0.0});
  EXPECT_THAT(zeros.limits, ElementsAre(1e-12));
  EXPECT_THAT(zeros.counts, ElementsAre(2));
  const Distribution ends = DistributionOf({kLargest, -kLargest, 1e300});
  EXPECT_EQ(ends.count, 3);
  EXPECT_THAT(ends.counts, ElementsAre(1, 0, 2));
  EXPECT_EQ(ends.limits.back(), kLargest);
}

TEST(DistributionOf, CountsWhatIsNotFiniteApart) {
  const Distribution d = DistributionOf({1, kInfinity, std::nan(""), -kInfinity, 2});
  EXPECT_EQ(d.count, 2);
  EXPECT_EQ(d.not_finite, 3);
  EXPECT_EQ(d.sum, 3);
  EXPECT_EQ(d.sum_squares, 5);
  EXPECT_EQ(d.max, 2);
  EXPECT_EQ(std::accumulate(d.counts.begin(), d.counts.end(), 0.0), 2);
}

TEST(DistributionOf, NothingIsOneEmptyBucket) {
  const Distribution d = DistributionOf({});
  EXPECT_EQ(d.count, 0);
  EXPECT_THAT(d.limits, ElementsAre(kLargest));
  EXPECT_THAT(d.counts, ElementsAre(0));
}

}  // namespace
}  // namespace muster::summary
