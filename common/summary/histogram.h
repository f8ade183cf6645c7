// The distribution of numbers in the buckets that TensorFlow and PyTorch use for TensorBoard.
// Limits are 0 and +-1e-12 x 1.1^k up to 1e20, so that the relative error is 10 %.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::summary {

struct Distribution {
  int64_t count = 0;  // Of finite values.
  // NaN and infinities. They are in no bucket and in none of the fields below.
  int64_t not_finite = 0;
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // counts[i] is the number of values v with limits[i - 1] <= v < limits[i]. Empty buckets at the
  // ends are dropped (not all readers of TensorBoard do). The first bucket begins at min, the last
  // ends at max. Adjacent empty buckets in between are merged. Without values there is one empty
  // bucket.
  std::vector<double> limits, counts;
};

Distribution DistributionOf(const double* values, int64_t count);
inline Distribution DistributionOf(const std::vector<double>& values) {
  return DistributionOf(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace muster::summary
