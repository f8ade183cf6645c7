// What metrics are made of. Internal to metrics.cc and decision_metrics.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muster/metrics.h"

namespace muster::metric_sums {

// Sums are float32, but for float64 values.
at::ScalarType SumType(const at::Tensor& values);

// Weights of examples, or of what their dimensions name, as one for each of `values`. Throws
// c10::Error where they cannot be.
at::Tensor ExpandWeights(const at::Tensor& values, const at::Tensor& weights);

// A quotient of two sums; 0 where the second is.
class Ratio : public Metric {
 public:
  int width() const override { return 2; }
  double Result(const std::vector<double>& sums) const override {
    return sums.at(1) == 0 ? 0 : sums[0] / sums[1];
  }
};

}  // namespace muster::metric_sums
