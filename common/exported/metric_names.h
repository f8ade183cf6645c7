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
  // Scores [.., classes] and labels [..]: any leading dimensions are examples.
  bool classes = false;
};

// `json` is a name or an object with "name", perhaps "as" (the name to show it by) and the metric's
// own keys. With `logits` outputs are logits of single decisions: default thresholds are 0 instead
// of 0.5, and "auc" takes the sigmoid.
absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits);

// What the metric adds up: scores and labels of tokens become examples, and so do their weights.
struct MetricArguments {
  at::Tensor output, target, weights;
};
// `weights` are the loss's (Loss::Weights), for class numbers that `output` has scores of in
// `class_dim`.
MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target, const at::Tensor& weights = {},
                             int64_t class_dim = -1);

}  // namespace muster::exported
