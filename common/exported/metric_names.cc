#include "common/exported/metric_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::exported {

absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits) {
  static const std::vector<std::string> kNames = {
      "accuracy", "top_k_accuracy",     "binary_accuracy",         "mean",
      "sum",      "mean_squared_error", "root_mean_squared_error", "mean_absolute_error"};
  const Json spec = json.is_string() ? Json{{"name", json}} : json;
  if (!spec.is_object() || !spec.contains("name")) {
    return ConfigurationError(fmt::format("{} must name a metric, one of {}; it is {}", place,
                                          fmt::join(kNames, ", "), Dump(json)));
  }
  NamedMetricSpec made;
  int k = 5;
  double threshold = logits ? 0.0 : 0.5;
  JsonObject object(spec, place);
  object.Read("name", &made.name);
  if (made.name == "top_k_accuracy") object.Read("k", &k);
  if (k < 1) object.Fail("k", fmt::format("must be above 0, is {}", k));
  if (made.name == "binary_accuracy") object.Read("threshold", &threshold);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  made.classes = made.name == "accuracy" || made.name == "top_k_accuracy";
  made.takes_target = made.name != "mean" && made.name != "sum";
  if (made.name == "accuracy") {
    made.metric = MakeAccuracy();
  } else if (made.name == "top_k_accuracy") {
    made.metric = MakeTopKAccuracy(k);
  } else if (made.name == "binary_accuracy") {
    made.metric = MakeBinaryAccuracy(threshold);
  } else if (made.name == "mean") {
    made.metric = MakeMean();
  } else if (made.name == "sum") {
    made.metric = MakeSum();
  } else if (made.name == "mean_squared_error") {
    made.metric = MakeMeanSquaredError();
  } else if (made.name == "root_mean_squared_error") {
    made.metric = MakeRootMeanSquaredError();
  } else if (made.name == "mean_absolute_error") {
    made.metric = MakeMeanAbsoluteError();
  } else {
    const std::string nearest = Nearest(made.name, kNames);
    return ConfigurationError(
        fmt::format("{} \"{}\" is unknown{}; metrics: {}", place, made.name,
                    nearest.empty() ? "" : fmt::format(", did you mean \"{}\"", nearest),
                    fmt::join(kNames, ", ")));
  }
  return made;
}

MetricArguments ArgumentsFor(const NamedMetricSpec& metric, const at::Tensor& output,
                             const at::Tensor& target, const at::Tensor& weights,
                             int64_t class_dim) {
  const bool scores = target.dim() + 1 == output.dim();
  const at::Tensor last = scores && output.dim() > 2 ? output.movedim(class_dim, -1) : output;
  if (!metric.takes_target) return {last, {}, weights};
  if (metric.classes && scores && output.dim() > 2) {
    return {last.flatten(0, -2), target.flatten(), weights.defined() ? weights.flatten() : weights};
  }
  if (!metric.classes && scores && output.size(-1) == 1) {
    return {output, target.unsqueeze(-1), weights};
  }
  return {output, target, weights};
}

}  // namespace muster::exported
