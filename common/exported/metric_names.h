// The metrics of common/metrics/metrics.h by name, for programs without C++.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/metrics.h"
#include "muster/status.h"

namespace muster::exported {

struct NamedMetricSpec {
  std::string name;  // In TensorBoard and result.json.
  std::shared_ptr<const Metric> metric;
  bool takes_target = true;
  // Takes scores [.., classes] and labels [..]. All leading dimensions are examples.
  bool classes = false;
};

// `json` is a name, or an object with "name", optionally "as" (the displayed name), and the keys of
// the metric. With `logits`, outputs are logits of binary decisions: default thresholds are 0
// instead of 0.5, and "auc" applies the sigmoid.
absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits);

// The arguments of the metric. Scores, labels and weights of tokens are flattened to examples.
struct MetricArguments {
  at::Tensor output, target, weights;
};
// `weights` come from Loss::Weights. They belong to class numbers whose scores are in the dimension
// `class_dim` of `output`.
MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target, const at::Tensor& weights = {},
                             int64_t class_dim = -1);

}  // namespace muster::exported
