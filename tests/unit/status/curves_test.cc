#include "chief/status/curves.h"

#include <gmock/gmock.h>

#include <cmath>

namespace muster::chief {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

TEST(Curves, HaveEachStepAtFirst) {
  Curves curves(4);
  CurveCursor cursor;
  for (int step = 1; step <= 3; ++step) curves.Add(step, 10.0 * step, 8, 0.5);
  const auto news = curves.Since(&cursor);
  EXPECT_TRUE(news.replaces);
  ASSERT_THAT(news.points, SizeIs(3));
  EXPECT_EQ(news.points[2].step, 3);
  EXPECT_DOUBLE_EQ(news.points[2].loss, 30);
  EXPECT_DOUBLE_EQ(news.points[2].examples_per_second, 16);
  EXPECT_DOUBLE_EQ(news.points[2].step_seconds, 0.5);
  EXPECT_THAT(curves.Since(&cursor).points, IsEmpty());

  curves.Add(4, 40, 8, 0.5);
  const auto later = curves.Since(&cursor);
  EXPECT_FALSE(later.replaces);
  ASSERT_THAT(later.points, SizeIs(1));
  EXPECT_EQ(later.points[0].step, 4);
}

TEST(Curves, StayBoundedAndLoseNoStep) {
  Curves curves(6);
  for (int step = 1; step <= 100000; ++step) curves.Add(step, step, 1, 1);
  CurveCursor cursor;
  const auto points = curves.Since(&cursor).points;
  ASSERT_LE(points.size(), 6u);
  ASSERT_GE(points.size(), 3u);
  int64_t before = 0;
  for (const CurvePoint& point : points) {
    EXPECT_EQ(point.step - before, points[0].step) << "all cover as many steps";
    // The mean of before + 1, ..., step.
    EXPECT_DOUBLE_EQ(point.loss, (before + 1 + point.step) / 2.0);
    EXPECT_DOUBLE_EQ(point.examples_per_second, 1);
    before = point.step;
  }
}

TEST(Curves, ReplaceWhatAReaderHasWhenPointsAreJoined) {
  Curves curves(2);
  CurveCursor cursor;
  curves.Add(1, 1, 1, 1);
  curves.Add(2, 2, 1, 1);
  (void)curves.Since(&cursor);
  curves.Add(3, 3, 1, 1);
  auto news = curves.Since(&cursor);
  EXPECT_TRUE(news.replaces);
  ASSERT_THAT(news.points, SizeIs(1));
  EXPECT_EQ(news.points[0].step, 2);
  curves.Add(4, 5, 1, 1);
  news = curves.Since(&cursor);
  EXPECT_FALSE(news.replaces);
  ASSERT_THAT(news.points, SizeIs(1));
  EXPECT_DOUBLE_EQ(news.points[0].loss, 4);
}

TEST(Curves, ForgetWhatTrainingRepeats) {
  Curves curves;
  CurveCursor cursor;
  for (int step = 1; step <= 5; ++step) curves.Add(step, step, 1, 1);
  (void)curves.Since(&cursor);
  curves.Rewind(5);
  EXPECT_FALSE(curves.Since(&cursor).replaces);
  curves.Rewind(3);
  curves.Add(4, 40, 1, 1);
  const auto news = curves.Since(&cursor);
  EXPECT_TRUE(news.replaces);
  ASSERT_THAT(news.points, SizeIs(4));
  EXPECT_DOUBLE_EQ(news.points[3].loss, 40);
}

TEST(Curves, KeepALossThatIsNoNumber) {
  Curves curves;
  CurveCursor cursor;
  curves.Add(1, std::nan(""), 1, 0);
  const auto points = curves.Since(&cursor).points;
  ASSERT_THAT(points, SizeIs(1));
  EXPECT_TRUE(std::isnan(points[0].loss));
  EXPECT_EQ(points[0].examples_per_second, 0);
}

}  // namespace
}  // namespace muster::chief
