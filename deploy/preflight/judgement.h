// Compares the facts of tasks, and evaluates the measurements of the paths between them. Pure
// functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deploy/preflight/checks.h"
#include "deploy/preflight/facts.h"

namespace muster::preflight {

// The limit in seconds above which an offset between clocks causes a warning. Log lines, traces and
// `muster explain` order the events of several hosts by their clocks. Training does not depend on
// them.
inline constexpr double kMaxClockOffset = 0.5;
// A path is slow if its rate is below this fraction of UsualRate.
inline constexpr double kSlowShare = 0.5;

// Compares a task with the chief: job file, versions, clock. The first returned check is a summary.
// The next ones name the differences. The other task's own warnings and failures follow.
std::vector<Check> CompareFacts(const Facts& chief, const Facts& other, const ClockOffset& clock);

// A path to be measured.
struct Path {
  std::string from, to;  // Tasks.
  bool operator==(const Path&) const = default;
};
// Returns the paths between all hosts, in both directions. One task represents all tasks of the
// same host and data address. Evaluators are left out. The paths of one element can be measured at
// the same time, because no task is in two of them.
std::vector<std::vector<Path>> Rounds(const std::vector<Facts>& tasks);

// Returns a check for each pair of tasks with measured paths, and a summary. A check warns or fails
// if the MTU of a path is smaller than that of the interface, and warns if the path is slow
// compared with the others. With more than `most_pairs` pairs, leaves out the pairs without a
// problem.
std::vector<Check> JudgePaths(const std::vector<PathFacts>& paths, size_t most_pairs = 28);
// Returns the rate, in bits per second, with which rates are compared. It is the median, but for up
// to three pairs the upper quartile, because one slow host of three makes most paths slow.
double UsualRate(const std::vector<PathFacts>& paths);

}  // namespace muster::preflight
