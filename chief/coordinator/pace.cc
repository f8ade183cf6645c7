#include "chief/coordinator/pace.h"

#include <algorithm>

namespace muster::chief {

Pace NextPace(const PaceRules& rules, Pace pace, double seconds, std::vector<double> others) {
  std::erase_if(others, [](double other) { return !(other > 0); });
  if (!(seconds > 0) || others.empty()) return Pace{};
  std::sort(others.begin(), others.end());
  const size_t half = others.size() / 2;
  pace.median_seconds =
      others.size() % 2 == 1 ? others[half] : (others[half - 1] + others[half]) / 2;
  const double excess = seconds - pace.median_seconds;
  pace.share = std::max(0.0, excess / seconds);
  const bool over = pace.share >= rules.share && excess >= rules.least_seconds;
  const bool under = pace.share < rules.share / 2 || excess < rules.least_seconds / 2;
  pace.over = over ? pace.over + 1 : 0;
  pace.under = under ? pace.under + 1 : 0;
  if (over && (pace.over >= rules.reports || pace.share >= rules.clear_share))
    pace.straggler = true;
  if (pace.under >= rules.reports_after) pace.straggler = false;
  return pace;
}

}  // namespace muster::chief
