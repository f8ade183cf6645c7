// Building blocks of metrics. Internal to metrics.cc and decision_metrics.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muster/metrics.h"

namespace muster::metric_sums {

// Returns float64 for float64 values, else float32.
at::ScalarType SumType(const at::Tensor& values);

// Expands weights to one for each of `values`. Weights may be per example, or have the leading
// dimensions of `values`. Throws c10::Error if the shapes do not match.
at::Tensor ExpandWeights(const at::Tensor& values, const at::Tensor& weights);

// A quotient of two sums; 0 if the divisor is 0.
class Ratio : public Metric {
 public:
  int width() const override { return 2; }
  double Result(const std::vector<double>& sums) const override {
    return sums.at(1) == 0 ? 0 : sums[0] / sums[1];
  }
};

}  // namespace muster::metric_sums
