// Makes metrics of muster/metrics.h from the job's "program.metrics", for exported programs.
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
  bool takes_target = true;  // False if the metric uses only the output.
  // True if the metric takes scores of shape [..., classes] and labels of shape [...]. The metric
  // counts each label as an example.
  bool classes = false;
};

// Makes the metric that `json` describes. `json` is the metric's name, or an object with "name",
// the optional key "as" (the displayed name) and the keys of the metric (docs/exported.md). `place`
// is the dotted job key of `json`, for messages. If the outputs are logits of binary decisions,
// `logits` is true. The default threshold is then 0 instead of 0.5, and "auc" applies the sigmoid.
absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits);

// The arguments of Metric::Increment or WeightedIncrement.
struct MetricArguments {
  at::Tensor output, target, weights;
};
// Returns the arguments for a metric. If NamedMetricSpec::classes is true, flattens tensors with
// one label per token: scores to [tokens, classes], labels and weights to [tokens]. `weights` is
// the result of Loss::Weights. `class_dim` is the dimension of the classes in `output`.
MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target, const at::Tensor& weights,
                             int64_t class_dim);

}  // namespace muster::exported
