// Judges what tasks have told each other and what was measured between them. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deploy/preflight/checks.h"
#include "deploy/preflight/facts.h"

namespace muster::preflight {

// Clocks that differ by more are worth a warning: log lines, traces and `muster explain` order
// events of several hosts by them. Training itself does not use them.
inline constexpr double kMaxClockOffset = 0.5;
// A path is slow if its rate is below this share of the usual one.
inline constexpr double kSlowShare = 0.5;

// Compares a task with the chief: job file, versions, clock. The first check sums up; others name
// what differs. The other task's own warnings and failures follow.
std::vector<Check> CompareFacts(const Facts& chief, const Facts& other, const ClockOffset& clock);

// A path to be measured.
struct Path {
  std::string from, to;  // Tasks.
  bool operator==(const Path&) const = default;
};
// Returns the paths between all hosts, in both directions: from one task of each host and data
// address to one of each other. Evaluators are left out. The paths of one element can be measured
// at the same time: no host is in two of them.
std::vector<std::vector<Path>> Rounds(const std::vector<Facts>& tasks);

// Returns a check for each pair of tasks whose paths were measured, and one that sums up. Names the
// pairs whose MTU is smaller than that of their interfaces, and those that are slow compared with
// the others. With more than `most_pairs` pairs, leaves out those in which nothing is wrong.
std::vector<Check> JudgePaths(const std::vector<PathFacts>& paths, size_t most_pairs = 28);
// Returns the rate with which others are compared: the median, but with up to three pairs the upper
// quartile, because one slow host of three makes most of their paths slow.
double UsualRate(const std::vector<PathFacts>& paths);

}  // namespace muster::preflight
