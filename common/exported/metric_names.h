// Makes metrics of muster/metrics.h by name, for exported programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/metrics.h"
#include "muster/status.h"

namespace muster::exported {

struct NamedMetricSpec {
  std::string name;  // The name in TensorBoard and result.json.
  std::shared_ptr<const Metric> metric;
  bool takes_target = true;
  // True if the metric takes scores [.., classes] and labels [..]. All leading dimensions then
  // count as examples.
  bool classes = false;
};

// `json` is a name, or an object with "name", the optional key "as" (the displayed name), and the
// keys of the metric. If `logits` is true, outputs are logits of binary decisions: default
// thresholds are then 0 instead of 0.5, and "auc" applies the sigmoid. `place` is the dotted key
// for messages.
absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits);

// The arguments of Metric::Increment or WeightedIncrement.
struct MetricArguments {
  at::Tensor output, target, weights;
};
// Returns the arguments for a metric. Scores, labels and weights of tokens are flattened to
// examples. `weights` is the result of Loss::Weights. `class_dim` is the dimension of the classes
// in `output`.
MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target, const at::Tensor& weights = {},
                             int64_t class_dim = -1);

}  // namespace muster::exported
