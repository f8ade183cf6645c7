// Compares the facts of tasks (facts.h), and evaluates the measurements of the network paths
// between tasks. Pure functions. A check (checks.h) is one line of the output.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deploy/preflight/checks.h"
#include "deploy/preflight/facts.h"

namespace muster::preflight {

// The largest offset between the clocks of two hosts, in seconds, that causes no warning. Training
// does not depend on clocks. But log lines, traces and `muster explain` order the events of several
// hosts by the hosts' clocks.
inline constexpr double kMaxClockOffset = 0.5;
// A path is slow if its rate is below this fraction of UsualRate.
inline constexpr double kSlowShare = 0.5;

// Compares job file, versions and clock of the task `other` with those of the chief. The first
// check of the result is a summary. The next checks name the differences. The last checks are the
// checks in other.checks.
std::vector<Check> CompareFacts(const Facts& chief, const Facts& other, const ClockOffset& clock);

// A path to be measured.
struct Path {
  std::string from, to;  // Tasks.
  bool operator==(const Path&) const = default;
};
// Returns the paths between all hosts, in both directions. All tasks with the same host and data
// address count as one task. Evaluators are left out. Each element of the result is a list of paths
// that can be measured at the same time, because no task is in two of these paths.
std::vector<std::vector<Path>> Rounds(const std::vector<Facts>& tasks);

// Returns a check for each pair of tasks with measured paths. A check warns or fails if the MTU of
// a path is smaller than the MTU of the interface. A check also warns if the path is slow
// (kSlowShare). If there are more than 28 pairs, returns only a summary and the checks that warn or
// fail.
std::vector<Check> JudgePaths(const std::vector<PathFacts>& paths);
// Returns the rate, in bits per second, with which JudgePaths compares all rates. With more than
// three pairs, this is the median rate of all paths. With up to three pairs, this is the upper
// quartile, because one slow host of three makes most paths slow.
double UsualRate(const std::vector<PathFacts>& paths);

}  // namespace muster::preflight
