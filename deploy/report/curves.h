// Selects the points of the curves on a page of `muster report`. The number of points is limited,
// so the page stays small.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/summary/event_reader.h"
#include "deploy/report/losses.h"
#include "deploy/report/run.h"
#include "muster/json.h"

namespace muster::report {

inline constexpr size_t kMaxPoints = 1000;       // The maximum for one curve.
inline constexpr size_t kMaxPagePoints = 60000;  // The maximum for all curves of a page.
inline constexpr size_t kFewestPoints = 50;      // The limit for one curve is never lower.

// Returns no more than `most` of the points, in their order. Keeps the first and the last point.
// Divides the other points into equal parts. Keeps up to three points of each part: the smallest
// value, the largest value, and the first value that is not finite. REQUIRES: most >= 5.
std::vector<summary::Point> Downsampled(const std::vector<summary::Point>& points, size_t most);

// Returns the data that the page's script draws: {"runs": [{"name", "curves": [{"folder", "tag",
// "all", "steps", "seconds", "values"}], "marks": [{"kind", "step", "seconds", "text"}]}]}. "all"
// is the number of points before the selection. "seconds" count from the run's first event. A value
// that is not finite is a string: "nan", "inf" or "-inf". marks[i] are the marks (losses.h) of
// runs[i].
Json CurvesJson(const std::vector<Run>& runs, const std::vector<std::vector<Mark>>& marks);

}  // namespace muster::report
