// The distribution of numbers, in the buckets that TensorFlow and PyTorch use for TensorBoard:
// limits are 0 and +-1e-12 x 1.1^k up to 1e20, so that any number is known to 10 %.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::summary {

struct Distribution {
  int64_t count = 0;       // of finite values
  int64_t not_finite = 0;  // NaN and infinities: in no bucket, and in nothing below
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // counts[i] values v with limits[i - 1] <= v < limits[i]. Empty buckets at the ends are left out
  // (not all readers of TensorBoard do; the first one begins at min, the last ends at max), those
  // next to each other in between are merged. Without values there is one empty bucket.
  std::vector<double> limits, counts;
};

Distribution DistributionOf(const double* values, int64_t count);
inline Distribution DistributionOf(const std::vector<double>& values) {
  return DistributionOf(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace muster::summary
