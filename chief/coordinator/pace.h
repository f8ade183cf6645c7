// Finds stragglers: members for which the others wait in each step. A straggler needs more time in
// a step than the others before its first wait for them. For people and monitoring only: it affects
// no decision.
#pragma once

#include <vector>

namespace muster::chief {

struct PaceRules {
  // A member is over the limit if its time is longer than the median of the others by this fraction
  // of its own time, and by at least `least_seconds`.
  double share = 0.2, least_seconds = 0.005;
  // After this many reports in a row over the limit, it is a straggler. One report suffices if the
  // fraction is at least `clear_share` and the difference at least `clear_seconds`, which is longer
  // than a busy host delays most steps.
  int reports = 3;
  double clear_share = 0.5, clear_seconds = 0.1;
  // A member is no longer a straggler after this many reports in a row below half of `share`. It is
  // larger than `reports`, so that a member whose pace varies remains one.
  int reports_after = 5;
};

struct Pace {
  bool straggler = false;
  double share = 0;           // As in PaceRules::share, of the last report.
  double median_seconds = 0;  // Of the others.
  int over = 0, under = 0;    // Reports in a row.
};

// Returns the pace after a report: `seconds` is TaskStats::local_step_seconds, a median of several
// steps, and `others` has those of the other members. Times that are not positive are unknown.
// Pure.
Pace NextPace(const PaceRules& rules, Pace pace, double seconds, std::vector<double> others);

}  // namespace muster::chief
