// Finds stragglers. A straggler is a member for which the other members wait in each step. The
// local time of a member is the part of a step before the member first waits for others. A
// straggler has a longer local time than the other members. The result is shown to people and to
// monitoring, and affects no decision of the coordinator.
#pragma once

#include <vector>

namespace muster::chief {

struct PaceRules {
  // The excess of a member is its local time minus the median of the other members' local times. A
  // member is over the limit if its excess is at least `share` of its own local time, and at least
  // `least_seconds`.
  double share = 0.2, least_seconds = 0.005;
  // A member is a straggler after this many reports in a row over the limit. A single report over
  // the limit suffices if the excess is at least `clear_share` of the member's local time, and at
  // least `clear_seconds`. A busy host alone rarely delays a step that much.
  int reports = 3;
  double clear_share = 0.5, clear_seconds = 0.1;
  // A member is no longer a straggler after this many reports in a row below half of the limit. The
  // number is larger than `reports`, so that a member whose pace varies remains a straggler.
  int reports_after = 5;
};

struct Pace {
  bool straggler = false;
  double share = 0;           // The excess divided by the local time, in the last report.
  double median_seconds = 0;  // The median of the other members' local times.
  // Counts of reports in a row: `over` the limit, and `under` half of the limit.
  int over = 0, under = 0;
};

// Returns the pace of a member after a report. `pace` is its pace before the report. `seconds` is
// the reported local time (TaskStats::local_step_seconds), which is a median of several steps.
// `others` has the local times of the other members. A time that is not positive counts as unknown.
// Pure.
Pace NextPace(const PaceRules& rules, Pace pace, double seconds, std::vector<double> others);

}  // namespace muster::chief
