#include "chief/coordinator/pace.h"

#include <algorithm>
#include <utility>

#include "common/telemetry/run_status.h"

namespace muster::chief {

Pace NextPace(const PaceRules& rules, Pace pace, double seconds, std::vector<double> others) {
  pace.median_seconds = MedianOfKnown(std::move(others));
  if (!(seconds > 0) || !(pace.median_seconds > 0)) return Pace{};
  const double excess = seconds - pace.median_seconds;
  pace.share = std::max(0.0, excess / seconds);
  const bool over = pace.share >= rules.share && excess >= rules.least_seconds;
  const bool under = pace.share < rules.share / 2 || excess < rules.least_seconds / 2;
  pace.over = over ? pace.over + 1 : 0;
  pace.under = under ? pace.under + 1 : 0;
  const bool clear = pace.share >= rules.clear_share && excess >= rules.clear_seconds;
  if (over && (clear || pace.over >= rules.reports)) pace.straggler = true;
  if (pace.under >= rules.reports_after) pace.straggler = false;
  return pace;
}

}  // namespace muster::chief
