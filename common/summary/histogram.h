// A histogram with the buckets that TensorFlow and PyTorch use for TensorBoard. The limits are 0
// and +-1e-12 x 1.1^k up to 1e20, so that the relative error is 10 %.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::summary {

struct Distribution {
  int64_t count = 0;  // The number of finite values.
  // The number of NaN and infinite values. All other fields ignore these values.
  int64_t not_finite = 0;
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // counts[i] is the number of values v with limits[i - 1] <= v < limits[i]. Empty buckets at the
  // ends are dropped, because not all readers of TensorBoard drop them. The first bucket begins at
  // min, and the last bucket ends at max. Adjacent empty buckets between them are merged. Without
  // values, there is one empty bucket.
  std::vector<double> limits, counts;
};

Distribution DistributionOf(const double* values, int64_t count);
inline Distribution DistributionOf(const std::vector<double>& values) {
  return DistributionOf(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace muster::summary
