#include "common/summary/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace muster::summary {
namespace {

const std::vector<double>& Limits() {
  static const auto* limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(std::numeric_limits<double>::max());
    auto* all = new std::vector<double>;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all->push_back(-*limit);
    all->push_back(0);
    all->insert(all->end(), positive.begin(), positive.end());
    return all;
  }();
  return *limits;
}

// Empty buckets next to each other tell nothing that one does not.
void MergeEmpty(const std::vector<int64_t>& counts, Distribution* out) {
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0 && i + 1 < counts.size() && counts[i + 1] == 0) continue;
    out->limits.push_back(Limits()[i]);
    out->counts.push_back(static_cast<double>(counts[i]));
  }
}

}  // namespace

Distribution DistributionOf(const std::vector<double>& values) {
  Distribution d;
  std::vector<int64_t> counts(Limits().size());
  for (double value : values) {
    if (!std::isfinite(value)) {
      ++d.not_finite;
      continue;
    }
    d.min = d.count == 0 ? value : std::min(d.min, value);
    d.max = d.count == 0 ? value : std::max(d.max, value);
    ++d.count;
    d.sum += value;
    d.sum_squares += value * value;
    const auto above = std::upper_bound(Limits().begin(), Limits().end(), value);
    const size_t bucket = above == Limits().end() ? counts.size() - 1 : above - Limits().begin();
    ++counts[bucket];
  }
  MergeEmpty(counts, &d);
  return d;
}

}  // namespace muster::summary
