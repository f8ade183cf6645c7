// The metrics of common/train/metrics.h by name, for a program that is not written in C++.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/metrics.h"
#include "muster/status.h"

namespace muster::exported {

struct NamedMetricSpec {
  std::string name;  // in TensorBoard and result.json
  std::shared_ptr<const Metric> metric;
  bool takes_target = true;
  bool classes =
      false;  // scores [.., classes] and labels [..]: any leading dimensions are examples
};

// `json` is a name or an object with "name" and the metric's own keys ("k", "threshold"). With
// `logits` the default threshold of binary_accuracy is 0, else 0.5.
absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits);

// What the metric adds up: scores and labels of tokens become examples.
struct MetricArguments {
  at::Tensor output, target;
};
MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target);

}  // namespace muster::exported
