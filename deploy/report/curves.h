// Selects the points of a page's curves. Their number is limited, so the page stays small.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/summary/event_reader.h"
#include "deploy/report/losses.h"
#include "deploy/report/run.h"
#include "muster/json.h"

namespace muster::report {

inline constexpr size_t kMaxPoints = 1000;       // The limit of one curve.
inline constexpr size_t kMaxPagePoints = 60000;  // The limit of all curves together.
inline constexpr size_t kFewestPoints = 50;      // A curve keeps this many despite it.

// Returns at most `most` of the points, in their order. Keeps the first and the last point, and of
// each part between them the smallest and the largest value and the first value that is not finite.
// REQUIRES: most >= 5.
std::vector<summary::Point> Downsampled(const std::vector<summary::Point>& points, size_t most);

// Returns the data that the page's script draws: {"runs": [{"name", "curves": [{"folder", "tag",
// "all", "steps", "seconds", "values"}], "marks": [{"kind", "step", "seconds", "text"}]}]}. Seconds
// count from the run's first event. A value that is not finite is a string: "nan", "inf", "-inf".
// `marks` has the same order as `runs`.
Json CurvesJson(const std::vector<Run>& runs, const std::vector<std::vector<Mark>>& marks);

}  // namespace muster::report
