// Helpers of metrics that accumulate sums. Internal to metrics.cc and decision_metrics.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muster/metrics.h"

namespace muster::metric_sums {

// Returns the dtype in which `values` are summed: float64 for float64 values, float32 for all
// others.
at::ScalarType SumType(const at::Tensor& values);

// Expands weights to the shape of `values`. Throws c10::Error if the shape of `weights` does not
// equal the leading dimensions of `values`, such as [batch].
at::Tensor ExpandWeights(const at::Tensor& values, const at::Tensor& weights);

// The base class of metrics that are a quotient of two sums. The value is 0 if the divisor is 0.
class Ratio : public Metric {
 public:
  int width() const override { return 2; }
  double Result(const std::vector<double>& sums) const override {
    return sums.at(1) == 0 ? 0 : sums[0] / sums[1];
  }
};

}  // namespace muster::metric_sums
