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

void StoreBuckets(const std::vector<int64_t>& counts, Distribution* out) {
  const auto filled = [](int64_t count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled);
  const auto end = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  for (auto count = first; count < end; ++count) {
    if (*count == 0 && count[1] == 0) continue;  // Merges two empty buckets.
    out->limits.push_back(Limits()[count - counts.begin()]);
    out->counts.push_back(static_cast<double>(*count));
  }
  if (!out->counts.empty()) return;
  out->limits.push_back(Limits().back());
  out->counts.push_back(0);
}

}  // namespace

Distribution DistributionOf(const double* values, int64_t count) {
  Distribution d;
  std::vector<int64_t> counts(Limits().size());
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
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
  StoreBuckets(counts, &d);
  return d;
}

}  // namespace muster::summary
