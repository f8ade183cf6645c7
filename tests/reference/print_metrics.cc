// Reads lines {"metric": spec, "logits": false, "output": {"shape", "values"}, "target": likewise
// or null, "weights": likewise or null, "steps": [[[begin, end], ...], ...]}: in each step each
// member has the examples of one such slice. Prints, for each line, {"value": the metric's, "sums":
// [...]}.
//
// Sums go their way as in training: float32 within a step and between members, double over an
// epoch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <iostream>
#include <string>
#include <vector>

#include "common/exported/metric_names.h"
#include "tests/reference/answer_lines.h"

namespace muster {
namespace {

// Integers alone are int64, as class numbers are.
at::Tensor TensorOf(const Json& json) {
  if (json.is_null()) return {};
  bool integers = true;
  for (const Json& value : json.at("values")) integers = integers && value.is_number_integer();
  const auto shape = json.at("shape").get<std::vector<int64_t>>();
  return integers
             ? at::tensor(json.at("values").get<std::vector<int64_t>>(), at::kLong).reshape(shape)
             : at::tensor(json.at("values").get<std::vector<double>>(), at::kDouble)
                   .to(at::kFloat)
                   .reshape(shape);
}

at::Tensor Slice(const at::Tensor& of, const Json& slice) {
  return of.defined() ? of.slice(0, slice.at(0).get<int64_t>(), slice.at(1).get<int64_t>()) : of;
}

absl::Status PrintMetric(const std::string& line) {
  MUSTER_ASSIGN_OR_RETURN(const Json asked, ParseJson(line, "the line"));
  MUSTER_ASSIGN_OR_RETURN(
      const exported::NamedMetricSpec spec,
      exported::MakeNamedMetric(asked.at("metric"), "metric", asked.value("logits", false)));
  const at::Tensor output = TensorOf(asked.at("output")), target = TensorOf(asked.at("target")),
                   weights = TensorOf(asked.at("weights"));
  std::vector<double> sums(spec.metric->width());
  for (const Json& step : asked.at("steps")) {
    at::Tensor all;
    for (const Json& slice : step) {
      const at::Tensor of_weights = Slice(weights, slice);
      const exported::MetricArguments a =
          exported::ArgumentsFor(spec, Slice(output, slice), Slice(target, slice),
                                 of_weights.defined() ? of_weights.to(at::kFloat) : of_weights, -1);
      const at::Tensor increment =
          (a.weights.defined() ? spec.metric->WeightedIncrement(a.output, a.target, a.weights)
                               : spec.metric->Increment(a.output, a.target))
              .to(at::kFloat);
      all = all.defined() ? all + increment : increment;
    }
    const at::Tensor wide = all.to(at::kDouble);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += wide.const_data_ptr<double>()[i];
  }
  std::cout << Json({{"value", spec.metric->Result(sums)}, {"sums", sums}}).dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main() { return muster::testing::AnswerLines(muster::PrintMetric); }
