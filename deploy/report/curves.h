// The curves of a page: at most so many points that the page stays small.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/summary/event_reader.h"
#include "deploy/report/losses.h"
#include "deploy/report/run.h"
#include "muster/json.h"

namespace muster::report {

inline constexpr size_t kMaxPoints = 1000;       // Of one curve.
inline constexpr size_t kMaxPagePoints = 60000;  // Of all curves together, unless ...
inline constexpr size_t kFewestPoints = 50;      // ... each has only so many.

// Returns at most `most` of the points, in their order. Keeps the first and the last point, and of
// each part between them the smallest and the largest value and the first value that is not finite.
// REQUIRES: most >= 5.
std::vector<summary::Point> Downsampled(const std::vector<summary::Point>& points, size_t most);

// Returns what the page's script draws: {"runs": [{"name", "curves": [{"folder", "tag", "all",
// "steps", "seconds", "values"}], "marks": [{"kind", "step", "seconds", "text"}]}]}. Seconds count
// from the run's first event. A value that is not finite is a string: "nan", "inf", "-inf".
// `marks` has the same order as `runs`.
Json CurvesJson(const std::vector<Run>& runs, const std::vector<std::vector<Mark>>& marks);

}  // namespace muster::report
