#include "common/exported/metric_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace muster::exported {
namespace {

// The state of reading a metric's keys.
struct Reading {
  JsonObject& object;
  bool logits;
  NamedMetricSpec& made;
};

// Reads a key and returns the index of its value in `choices`. Returns nullopt if the key is absent
// or the value is unknown.
std::optional<size_t> ReadChoice(JsonObject& object, const std::string& key,
                                 const std::vector<std::string>& choices) {
  std::string word = choices.front();
  object.Read(key, &word);
  const auto found = std::find(choices.begin(), choices.end(), word);
  if (found != choices.end()) return found - choices.begin();
  object.Fail(key, fmt::format("must be one of {}, is \"{}\"", fmt::join(choices, ", "), word));
  return std::nullopt;
}

void ReadAtLeast(JsonObject& object, const std::string& key, int least, int* out) {
  object.Read(key, out);
  if (object.Has(key) && *out < least)
    object.Fail(key, fmt::format("must not be below {}, is {}", least, *out));
}

void ReadThreshold(JsonObject& object, std::optional<double>* out) {
  double threshold = 0;
  object.Read("threshold", &threshold);
  if (object.Has("threshold")) *out = threshold;
}

std::shared_ptr<const Metric> TopK(Reading& reading) {
  int k = 5;
  ReadAtLeast(reading.object, "k", 1, &k);
  reading.made.classes = true;
  return MakeTopKAccuracy(std::max(1, k));
}

std::shared_ptr<const Metric> BinaryAccuracy(Reading& reading) {
  double threshold = reading.logits ? 0.0 : 0.5;
  reading.object.Read("threshold", &threshold);
  return MakeBinaryAccuracy(threshold);
}

DecisionOptions ReadDecision(Reading& reading) {
  DecisionOptions options;
  ReadThreshold(reading.object, &options.threshold);
  ReadAtLeast(reading.object, "top_k", 1, &options.top_k);
  ReadAtLeast(reading.object, "class_id", 0, &options.class_id);
  options.top_k = std::max(0, options.top_k);
  if (reading.logits && !options.threshold && options.top_k == 0) options.threshold = 0;
  return options;
}

std::shared_ptr<const Metric> FScore(Reading& reading) {
  FScoreOptions options;
  JsonObject& object = reading.object;
  if (reading.made.name == "fbeta_score") object.Read("beta", &options.beta);
  if (!(options.beta > 0)) object.Fail("beta", fmt::format("must be above 0, is {}", options.beta));
  ReadThreshold(object, &options.threshold);
  if (reading.logits && !options.threshold) options.threshold = 0;
  if (const auto average = ReadChoice(object, "average", {"micro", "macro", "weighted"}))
    options.average = static_cast<ClassAverage>(*average);
  ReadAtLeast(object, "classes", 1, &options.classes);
  ReadAtLeast(object, "class_id", 0, &options.class_id);
  if (options.average != ClassAverage::kMicro && options.class_id < 0 && !object.Has("classes"))
    object.Fail("classes", "is missing: how many classes the output has, to average over them");
  options.classes = std::max(1, options.classes);
  if (!(options.beta > 0)) options.beta = 1;  // The error is already reported.
  return MakeFScore(options);
}

std::shared_ptr<const Metric> Area(Reading& reading) {
  AucOptions options;
  JsonObject& object = reading.object;
  options.from_logits = reading.logits;
  if (const auto curve = ReadChoice(object, "curve", {"ROC", "PR"}))
    options.curve = static_cast<AucOptions::Curve>(*curve);
  if (const auto summation =
          ReadChoice(object, "summation_method", {"interpolation", "minoring", "majoring"}))
    options.summation = static_cast<AucOptions::Summation>(*summation);
  ReadAtLeast(object, "num_thresholds", 2, &options.num_thresholds);
  constexpr int kMaxThresholds = 100'000;
  if (options.num_thresholds > kMaxThresholds) {
    object.Fail("num_thresholds",
                fmt::format("must not be above {}, is {}", kMaxThresholds, options.num_thresholds));
  }
  object.Read("from_logits", &options.from_logits);
  options.num_thresholds = std::clamp(options.num_thresholds, 2, kMaxThresholds);
  return MakeAuc(options);
}

std::shared_ptr<const Metric> Confusion(Reading& reading) {
  int classes = 0;
  reading.object.Read("classes", &classes);
  if (classes < 2 || classes > kMostConfusionClasses) {
    reading.object.Fail(
        "classes", reading.object.Has("classes")
                       ? fmt::format("must be from 2 to {}, is {}", kMostConfusionClasses, classes)
                       : "is missing: how many classes the output has");
  }
  reading.made.classes = true;
  return MakeConfusionMatrix(std::clamp(classes, 2, kMostConfusionClasses));
}

// Returns true if Builder::metric accepts the name.
bool IsName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
}

struct Maker {
  const char* name;
  std::shared_ptr<const Metric> (*make)(Reading& reading);
};

const std::vector<Maker>& Makers() {
  static const std::vector<Maker> makers = {
      {"accuracy",
       [](Reading& reading) {
         reading.made.classes = true;
         return MakeAccuracy();
       }},
      {"top_k_accuracy", TopK},
      {"binary_accuracy", BinaryAccuracy},
      {"precision", [](Reading& reading) { return MakePrecision(ReadDecision(reading)); }},
      {"recall", [](Reading& reading) { return MakeRecall(ReadDecision(reading)); }},
      {"f1_score", FScore},
      {"fbeta_score", FScore},
      {"auc", Area},
      {"confusion_matrix", Confusion},
      {"perplexity",
       [](Reading& reading) {
         reading.made.classes = true;
         return MakePerplexity();
       }},
      {"cosine_similarity", [](Reading&) { return MakeCosineSimilarity(); }},
      {"mean",
       [](Reading& reading) {
         reading.made.takes_target = false;
         return MakeMean();
       }},
      {"sum",
       [](Reading& reading) {
         reading.made.takes_target = false;
         return MakeSum();
       }},
      {"mean_squared_error", [](Reading&) { return MakeMeanSquaredError(); }},
      {"root_mean_squared_error", [](Reading&) { return MakeRootMeanSquaredError(); }},
      {"mean_absolute_error", [](Reading&) { return MakeMeanAbsoluteError(); }}};
  return makers;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Maker& maker : Makers()) names.push_back(maker.name);
  return names;
}

}  // namespace

absl::StatusOr<NamedMetricSpec> MakeNamedMetric(const Json& json, const std::string& place,
                                                bool logits) {
  const Json spec = json.is_string() ? Json{{"name", json}} : json;
  if (!spec.is_object() || !spec.contains("name") || !spec["name"].is_string()) {
    return ConfigurationError(fmt::format("{} must name a metric, one of {}; it is {}", place,
                                          fmt::join(Names(), ", "), Dump(json)));
  }
  NamedMetricSpec made;
  std::string shown;
  JsonObject object(spec, place);
  object.Read("name", &made.name).Read("as", &shown);
  if (object.Has("as") && (shown == "loss" || !IsName(shown))) {
    object.Fail("as", fmt::format("must be made of letters, digits, '_' and '-', and not be loss, "
                                  "is \"{}\"",
                                  shown));
  }
  Reading reading{object, logits, made};
  for (const Maker& maker : Makers()) {
    if (made.name != maker.name) continue;
    made.metric = maker.make(reading);
    MUSTER_RETURN_IF_ERROR(object.Finish());
    if (!shown.empty()) made.name = shown;
    return made;
  }
  const std::string nearest = Nearest(made.name, Names());
  return ConfigurationError(
      fmt::format("{} \"{}\" is unknown{}; metrics: {}", place, made.name,
                  nearest.empty() ? "" : fmt::format(", did you mean \"{}\"", nearest),
                  fmt::join(Names(), ", ")));
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
  return {scores ? last : output, target, weights};
}

}  // namespace muster::exported
