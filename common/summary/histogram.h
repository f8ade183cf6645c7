// A histogram with the bucket limits that TensorFlow and PyTorch use for TensorBoard: 0, and both
// signs of 1e-12 * 1.1^k (k = 0, 1, ...) up to 1e20 and of the largest finite double.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::summary {

struct Distribution {
  int64_t count = 0;  // The number of finite values.
  // The number of NaN and infinite values. The other fields do not include these values.
  int64_t not_finite = 0;
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // counts[i] is the number of values v with limits[i - 1] <= v < limits[i]. Empty buckets at both
  // ends are dropped, because not all readers of event files drop them. The first bucket contains
  // min, and the last bucket contains max. Adjacent empty buckets are merged into one. Without
  // values, there is one empty bucket.
  std::vector<double> limits, counts;
};

Distribution DistributionOf(const double* values, int64_t count);
inline Distribution DistributionOf(const std::vector<double>& values) {
  return DistributionOf(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace muster::summary
