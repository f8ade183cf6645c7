#include "deploy/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace muster::report {
namespace {

using summary::Point;

// Adds the points that represent the points in [begin, end): their extremes and the first value
// that is not finite.
void AddExtremes(const std::vector<Point>& points, size_t begin, size_t end,
                 std::vector<Point>* kept) {
  std::set<size_t> chosen;
  size_t low = end, high = end, odd = end;
  for (size_t i = begin; i < end; ++i) {
    const double value = points[i].value;
    if (!std::isfinite(value)) {
      if (odd == end) odd = i;
      continue;
    }
    if (low == end || value < points[low].value) low = i;
    if (high == end || value > points[high].value) high = i;
  }
  for (const size_t i : {low, high, odd})
    if (i != end) chosen.insert(i);
  for (const size_t i : chosen) kept->push_back(points[i]);
}

// Rounds to the precision of the event files. Shorter text makes the page smaller.
Json ShortNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::fabs(value) < 1e15) return static_cast<int64_t>(value);
  return std::stod(fmt::format("{:.7g}", value));
}

Json CurveJson(const std::string& folder, const std::string& tag, const std::vector<Point>& points,
               size_t most, double began) {
  Json steps = Json::array(), seconds = Json::array(), values = Json::array();
  for (const Point& point : Downsampled(points, most)) {
    steps.push_back(point.step);
    seconds.push_back(ShortNumber(std::round((point.wall - began) * 100) / 100));
    values.push_back(ShortNumber(point.value));
  }
  return {{"folder", folder},
          {"tag", tag},
          {"all", points.size()},
          {"steps", std::move(steps)},
          {"seconds", std::move(seconds)},
          {"values", std::move(values)}};
}

// Returns the number of points that a curve may have, so that all curves together stay within
// kMaxPagePoints.
size_t MostPoints(const std::vector<Run>& runs) {
  size_t most = kMaxPoints;
  for (; most > kFewestPoints; most -= 10) {
    size_t all = 0;
    for (const Run& run : runs)
      for (const auto& [folder, content] : run.folders)
        for (const auto& [tag, points] : content.scalars) all += std::min(points.size(), most);
    if (all <= kMaxPagePoints) break;
  }
  return most;
}

}  // namespace

std::vector<Point> Downsampled(const std::vector<Point>& points, size_t most) {
  if (points.size() <= most) return points;
  const bool finite = std::all_of(points.begin(), points.end(),
                                  [](const Point& point) { return std::isfinite(point.value); });
  const size_t parts = (most - 2) / (finite ? 2 : 3), inner = points.size() - 2;
  std::vector<Point> kept = {points.front()};
  for (size_t part = 0; part < parts; ++part)
    AddExtremes(points, 1 + part * inner / parts, 1 + (part + 1) * inner / parts, &kept);
  kept.push_back(points.back());
  return kept;
}

Json CurvesJson(const std::vector<Run>& runs, const std::vector<std::vector<Mark>>& marks) {
  const size_t most = MostPoints(runs);
  Json list = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    Json drawn = Json::array(), marked = Json::array();
    for (const auto& [folder, content] : run.folders)
      for (const auto& [tag, points] : content.scalars)
        drawn.push_back(CurveJson(folder, tag, points, most, run.began));
    for (const Mark& mark : marks[i])
      marked.push_back({{"kind", KindName(mark.kind)},
                        {"step", mark.step},
                        {"seconds", mark.wall > 0 ? ShortNumber(mark.wall - run.began) : Json()},
                        {"text", mark.text}});
    list.push_back(
        {{"name", run.name}, {"curves", std::move(drawn)}, {"marks", std::move(marked)}});
  }
  return {{"runs", std::move(list)}};
}

}  // namespace muster::report
