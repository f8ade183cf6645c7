#include "deploy/report/curves.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/unit/report/runs.h"

namespace muster::report {
namespace {

using summary::Point;

std::vector<Point> Points(size_t count, double (*value)(size_t)) {
  std::vector<Point> points;
  for (size_t i = 0; i < count; ++i)
    points.push_back({static_cast<int64_t>(i), 1.7e9 + static_cast<double>(i), value(i)});
  return points;
}

TEST(Downsampled, KeepsShortCurves) {
  const auto points = Points(10, [](size_t i) { return static_cast<double>(i); });
  EXPECT_EQ(Downsampled(points, 10).size(), 10u);
  EXPECT_TRUE(Downsampled({}, 10).empty());
}

TEST(Downsampled, KeepsEndsAndExtremesInOrder) {
  auto points = Points(100'000, [](size_t i) { return std::sin(static_cast<double>(i) / 500); });
  points[33'333].value = 70;
  points[66'666].value = -70;
  points[66'667].value = 71;
  const auto kept = Downsampled(points, 1000);
  EXPECT_LE(kept.size(), 1000u);
  EXPECT_GT(kept.size(), 900u);
  EXPECT_EQ(kept.front().step, 0);
  EXPECT_EQ(kept.back().step, 99'999);
  int found = 0;
  for (size_t i = 1; i < kept.size(); ++i) {
    EXPECT_LT(kept[i - 1].step, kept[i].step);
    found += std::fabs(kept[i].value) >= 70 ? 1 : 0;
  }
  EXPECT_EQ(found, 3);
}

TEST(Downsampled, KeepsOneValueOfEachPartThatIsNotFinite) {
  auto points = Points(5000, [](size_t i) { return static_cast<double>(i % 7); });
  points[1234].value = std::numeric_limits<double>::quiet_NaN();
  const auto kept = Downsampled(points, 100);
  EXPECT_LE(kept.size(), 100u);
  int found = 0;
  for (const Point& point : kept) found += std::isnan(point.value) ? 1 : 0;
  EXPECT_EQ(found, 1);
  // Nothing but such values.
  const auto none = Points(5000, [](size_t) { return std::numeric_limits<double>::infinity(); });
  EXPECT_GE(Downsampled(none, 100).size(), 30u);
}

TEST(Downsampled, ObeysTheSmallestLimit) {
  const auto points = Points(1000, [](size_t i) { return static_cast<double>(i % 3); });
  EXPECT_LE(Downsampled(points, 5).size(), 5u);
}

TEST(CurvesJson, WritesWhatIsNotFiniteAsText) {
  report::Run run{.name = "a", .began = 100};
  run.folders["train"].scalars["loss"] = {{1, 100.004, 0.5},
                                          {2, 101, std::numeric_limits<double>::quiet_NaN()},
                                          {3, 102, -std::numeric_limits<double>::infinity()},
                                          {4, 103, 1.0F / 3}};
  const Mark mark{.step = 2, .wall = 101.5, .text = "worker:0 was lost"};
  const Json json = CurvesJson({run}, {{mark}});
  const Json& curve = json["runs"][0]["curves"][0];
  EXPECT_EQ(curve["tag"], "loss");
  EXPECT_EQ(curve["all"], 4);
  EXPECT_EQ(curve["steps"], Json({1, 2, 3, 4}));
  EXPECT_EQ(curve["seconds"], Json({0, 1, 2, 3}));
  EXPECT_EQ(curve["values"], Json({0.5, "nan", "-inf", 0.3333333}));
  EXPECT_EQ(json["runs"][0]["marks"][0]["seconds"], 1.5);
  EXPECT_EQ(json["runs"][0]["marks"][0]["kind"], "loss");
}

TEST(CurvesJson, ShortCurvesLeaveTheirPointsToLongOnes) {
  report::Run run{.name = "a"};
  for (int i = 0; i < 300; ++i)
    run.folders["train"].scalars["tag " + std::to_string(i)] =
        Points(10, [](size_t step) { return static_cast<double>(step); });
  run.folders["train"].scalars["long"] = Points(5000, [](size_t i) { return i % 3 * 1.5; });
  const Json json = CurvesJson({run}, {{}});
  EXPECT_GE(json["runs"][0]["curves"][0]["values"].size(), kMaxPoints - 10);
}

TEST(CurvesJson, ManyCurvesShareThePagesPoints) {
  report::Run run{.name = "a"};
  for (int i = 0; i < 300; ++i)
    run.folders["train"].scalars["tag " + std::to_string(i)] =
        Points(2000, [](size_t step) { return static_cast<double>(step); });
  size_t points = 0;
  const Json json = CurvesJson({run}, {{}});
  for (const Json& curve : json["runs"][0]["curves"]) points += curve["values"].size();
  EXPECT_LE(points, kMaxPagePoints);
  EXPECT_GT(points, kMaxPagePoints / 2);
}

}  // namespace
}  // namespace muster::report
