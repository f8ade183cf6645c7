#include "common/optim/optimizer_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// Reads a hyperparameter, which must be in [0, limit).
void ReadFactor(JsonObject& json, const std::string& key, double* out, double limit = INFINITY) {
  json.Read(key, out);
  if (*out >= 0 && *out < limit) return;
  json.Fail(key, std::isinf(limit) ? fmt::format("must not be below 0, is {}", *out)
                                   : fmt::format("must be in [0, {}), is {}", limit, *out));
}

SgdSpec ReadSgd(JsonObject& json) {
  SgdSpec rule;
  ReadFactor(json, "momentum", &rule.momentum, 1);
  json.Read("nesterov", &rule.nesterov);
  ReadFactor(json, "weight_decay", &rule.weight_decay);
  if (rule.nesterov && rule.momentum == 0) json.Fail("nesterov", "needs a momentum above 0");
  return rule;
}

AdamSpec ReadAdam(JsonObject& json, bool decoupled) {
  AdamSpec rule;
  rule.decoupled = decoupled;
  if (decoupled) rule.weight_decay = 0.004;
  ReadFactor(json, "beta1", &rule.beta1, 1);
  ReadFactor(json, "beta2", &rule.beta2, 1);
  ReadFactor(json, "epsilon", &rule.epsilon);
  ReadFactor(json, "weight_decay", &rule.weight_decay);
  json.Read("amsgrad", &rule.amsgrad);
  return rule;
}

template <typename Spec>
Spec ReadAdagrad(JsonObject& json) {
  Spec rule;
  ReadFactor(json, "initial_accumulator_value", &rule.initial_accumulator_value);
  ReadFactor(json, "epsilon", &rule.epsilon);
  ReadFactor(json, "weight_decay", &rule.weight_decay);
  return rule;
}

RmsPropSpec ReadRmsProp(JsonObject& json) {
  RmsPropSpec rule;
  ReadFactor(json, "rho", &rule.rho, 1);
  ReadFactor(json, "momentum", &rule.momentum, 1);
  ReadFactor(json, "epsilon", &rule.epsilon);
  ReadFactor(json, "weight_decay", &rule.weight_decay);
  json.Read("centered", &rule.centered);
  return rule;
}

FtrlSpec ReadFtrl(JsonObject& json) {
  FtrlSpec rule;
  ReadFactor(json, "initial_accumulator_value", &rule.initial_accumulator_value);
  ReadFactor(json, "l1", &rule.l1);
  ReadFactor(json, "l2", &rule.l2);
  ReadFactor(json, "l2_shrinkage", &rule.l2_shrinkage);
  ReadFactor(json, "beta", &rule.beta);
  return rule;
}

RuleSpec ReadRule(const std::string& name, JsonObject& json) {
  if (name == "sgd") return ReadSgd(json);
  if (name == "adam") return ReadAdam(json, /*decoupled=*/false);
  if (name == "adamw") return ReadAdam(json, /*decoupled=*/true);
  if (name == "adagrad") return ReadAdagrad<AdagradSpec>(json);
  if (name == "rowwise_adagrad") return ReadAdagrad<RowwiseAdagradSpec>(json);
  if (name == "rmsprop") return ReadRmsProp(json);
  if (name == "ftrl") return ReadFtrl(json);
  const std::string nearest = Nearest(name, OptimizerNames());
  json.Fail("name", nearest.empty() || name.empty()
                        ? fmt::format("must be one of {}, is \"{}\"",
                                      fmt::join(OptimizerNames(), ", "), name)
                        : fmt::format("is \"{}\", did you mean \"{}\"?", name, nearest));
  return SgdSpec();
}

ClipOptions ReadClip(JsonObject& json) {
  ClipOptions clip;
  int given = 0;
  for (const auto& [key, value] :
       {std::pair{"clipvalue", &clip.clipvalue}, std::pair{"clipnorm", &clip.clipnorm},
        std::pair{"global_clipnorm", &clip.global_clipnorm}}) {
    json.Read(key, value);
    if (*value < 0) json.Fail(key, fmt::format("must not be below 0, is {}", *value));
    if (*value > 0 && ++given > 1) {
      json.Fail(key, "cannot be combined with another of clipvalue, clipnorm, global_clipnorm");
    }
  }
  return clip;
}

Json WithName(const Json& json) { return json.is_string() ? Json::object({{"name", json}}) : json; }

template <typename Spec>
std::string AdagradText(const char* name, const Spec& r) {
  return fmt::format("{}(initial_accumulator_value={}, epsilon={}, weight_decay={}", name,
                     r.initial_accumulator_value, r.epsilon, r.weight_decay);
}

std::string Text(const RuleSpec& rule) {
  return std::visit(
      Overloaded{[](const SgdSpec& r) {
                   return fmt::format("sgd(momentum={}, nesterov={}, weight_decay={}", r.momentum,
                                      r.nesterov, r.weight_decay);
                 },
                 [](const AdamSpec& r) {
                   return fmt::format(
                       "{}(beta1={}, beta2={}, epsilon={}, weight_decay={}, amsgrad={}",
                       r.decoupled ? "adamw" : "adam", r.beta1, r.beta2, r.epsilon, r.weight_decay,
                       r.amsgrad);
                 },
                 [](const AdagradSpec& r) { return AdagradText("adagrad", r); },
                 [](const RowwiseAdagradSpec& r) { return AdagradText("rowwise_adagrad", r); },
                 [](const RmsPropSpec& r) {
                   return fmt::format(
                       "rmsprop(rho={}, momentum={}, epsilon={}, centered={}, "
                       "weight_decay={}",
                       r.rho, r.momentum, r.epsilon, r.centered, r.weight_decay);
                 },
                 [](const FtrlSpec& r) {
                   return fmt::format(
                       "ftrl(initial_accumulator_value={}, l1={}, l2={}, l2_shrinkage={}, beta={}",
                       r.initial_accumulator_value, r.l1, r.l2, r.l2_shrinkage, r.beta);
                 }},
      rule);
}

// ---- Groups.

const char* const kGroupKeys[] = {"parameters", "learning_rate_scale"};
const char* const kOptimizerKeys[] = {"name", "clipvalue", "clipnorm", "global_clipnorm"};

// Returns the keys of the optimizer, with values of the group where the group has the key.
Json WithChanges(Json optimizer, const Json& group) {
  optimizer.erase("groups");
  for (const auto& [key, value] : group.items()) {
    const bool own =
        std::find(std::begin(kGroupKeys), std::end(kGroupKeys), key) != std::end(kGroupKeys);
    if (!own && !value.is_null()) optimizer[key] = value;
  }
  return optimizer;
}

std::vector<std::string> ReadGlobs(JsonObject& reader) {
  Json given;
  reader.Read("parameters", &given);
  std::vector<std::string> globs;
  if (given.is_string()) {
    globs = {given.get<std::string>()};
  } else {
    reader.Read("parameters", &globs);
  }
  const bool empty = globs.empty() || std::any_of(globs.begin(), globs.end(),
                                                  [](const auto& glob) { return glob.empty(); });
  if (empty)
    reader.Fail("parameters",
                "must be a pattern of parameters' names such as \"*.bias\", or a list of them");
  return globs;
}

absl::StatusOr<OptimizerGroup> ReadGroup(const Json& optimizer, const Json& json, size_t index,
                                         const RuleSpec& rule) {
  const std::string place = fmt::format("optimizer.groups[{}]", index);
  JsonObject reader(json, place);
  OptimizerGroup group;
  if (json.is_object()) {
    group.parameters = ReadGlobs(reader);
    ReadFactor(reader, "learning_rate_scale", &group.learning_rate_scale);
    for (const char* key : kOptimizerKeys)
      if (reader.Has(key)) reader.Fail(key, "belongs to the whole optimizer, not to a group");
    if (reader.Has("groups")) reader.Fail("groups", "is inside of a group: groups have none");
    if (reader.Has("learning_rate"))
      reader.Fail("learning_rate",
                  "is not a key of a group: set \"learning_rate_scale\", a factor of the "
                  "optimizer's rate");
    for (const auto& [key, value] : json.items())
      if (key != "parameters" && !value.is_null())
        group.text += fmt::format("{}{}={}", group.text.empty() ? "" : ", ", key, value.dump());
    Json skipped;
    // Marks all keys as known. The rule reads them below.
    for (const auto& [key, value] : json.items()) reader.Read(key, &skipped);
  }
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  // Checks all keys of the rule. Errors name the group's path for keys that the group changes.
  Json merged = WithChanges(optimizer, json);
  for (const char* key : kOptimizerKeys) merged.erase(key);
  JsonObject changed(merged, place);
  group.rule = ReadRule(optimizer.at("name").get<std::string>(), changed);
  Json skipped;
  // Makes the keys known to suggestions.
  for (const char* key : kGroupKeys) changed.Read(key, &skipped);
  MUSTER_RETURN_IF_ERROR(changed.Finish());
  if (SlotNames(group.rule) != SlotNames(rule))
    return ConfigurationError(fmt::format(
        "{} would need other slots ({}) than its optimizer ({}): momentum, amsgrad and centered "
        "are on or off for a whole optimizer",
        place, fmt::join(SlotNames(group.rule), ", "), fmt::join(SlotNames(rule), ", ")));
  return group;
}

bool Matches(const OptimizerGroup& group, const std::vector<std::string>& names) {
  return std::any_of(group.parameters.begin(), group.parameters.end(), [&](const auto& glob) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
    });
  });
}

}  // namespace

const std::vector<std::string>& OptimizerNames() {
  static const std::vector<std::string> names = {"sgd",     "adam", "adamw",          "adagrad",
                                                 "rmsprop", "ftrl", "rowwise_adagrad"};
  return names;
}

absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json) {
  const Json object = WithName(json);
  JsonObject reader(object, "optimizer");
  std::string name;
  Json groups;
  reader.Read("name", &name);
  OptimizerSpec spec;
  spec.rule = ReadRule(name, reader);
  if (reader.Has("learning_rate")) {
    reader.Fail("learning_rate", "is not a key of an optimizer: set the job's \"learning_rate\"");
  }
  for (const char* key : {"parameters", "learning_rate_scale"})
    if (reader.Has(key)) reader.Fail(key, "is a key of a group: put it into \"groups\"");
  spec.clip = ReadClip(reader);
  reader.Read("groups", &groups);
  if (!groups.is_null() && !groups.is_array())
    reader.Fail("groups", fmt::format("must be a list of objects, is {}", groups.dump()));
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  for (size_t i = 0; i < groups.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(OptimizerGroup group, ReadGroup(object, groups[i], i, spec.rule));
    spec.groups.push_back(std::move(group));
  }
  return spec;
}

Json OptimizerOfGroup(const Json& json, int group) {
  Json object = WithName(json);
  if (group > 0) object = WithChanges(object, object.at("groups").at(group - 1));
  object.erase("groups");
  return object;
}

std::vector<int> AssignGroups(const OptimizerSpec& spec,
                              const std::vector<std::vector<std::string>>& names,
                              std::vector<int>* matches) {
  matches->resize(spec.groups.size());
  std::vector<int> assigned;
  for (const std::vector<std::string>& of_parameter : names) {
    int own = 0;
    for (size_t g = spec.groups.size(); g > 0; --g) {
      if (!Matches(spec.groups[g - 1], of_parameter)) continue;
      ++(*matches)[g - 1];
      own = static_cast<int>(g);
    }
    assigned.push_back(own);
  }
  return assigned;
}

double DefaultLearningRate(const Json& json) {
  const Json object = WithName(json);
  return object.is_object() && object.value("name", Json()) == "sgd" ? 0.01 : 0.001;
}

std::vector<std::string> SlotNames(const RuleSpec& rule) {
  using Names = std::vector<std::string>;
  return std::visit(Overloaded{[](const SgdSpec& r) {
                                 return r.momentum == 0 ? Names{} : Names{"momentum_buffer"};
                               },
                               [](const AdamSpec& r) {
                                 Names names = {"exp_avg", "exp_avg_sq", "step"};
                                 if (r.amsgrad) names.push_back("max_exp_avg_sq");
                                 return names;
                               },
                               [](const AdagradSpec&) { return Names{"sum"}; },
                               [](const RowwiseAdagradSpec&) { return Names{"sum"}; },
                               [](const RmsPropSpec& r) {
                                 Names names = {"square_avg"};
                                 if (r.centered) names.push_back("grad_avg");
                                 if (r.momentum > 0) names.push_back("momentum_buffer");
                                 return names;
                               },
                               [](const FtrlSpec&) {
                                 return Names{"accumulator", "linear"};
                               }},
                    rule);
}

double InitialSlotValue(const RuleSpec& rule, const std::string& slot) {
  if (const auto* adagrad = std::get_if<AdagradSpec>(&rule))
    return adagrad->initial_accumulator_value;
  if (const auto* rowwise = std::get_if<RowwiseAdagradSpec>(&rule))
    return rowwise->initial_accumulator_value;
  if (const auto* ftrl = std::get_if<FtrlSpec>(&rule); ftrl != nullptr && slot == "accumulator")
    return ftrl->initial_accumulator_value;
  return 0;
}

bool ZeroGradientIsNone(const RuleSpec& rule) {
  if (const auto* sgd = std::get_if<SgdSpec>(&rule))
    return sgd->momentum == 0 && sgd->weight_decay == 0;
  if (const auto* adagrad = std::get_if<AdagradSpec>(&rule))
    return adagrad->weight_decay == 0 && adagrad->epsilon > 0;
  return false;
}

std::string Describe(const OptimizerSpec& spec) {
  const ClipOptions& clip = spec.clip;
  std::string text = Text(spec.rule);
  if (clip.clipvalue > 0) text += fmt::format(", clipvalue={}", clip.clipvalue);
  if (clip.clipnorm > 0) text += fmt::format(", clipnorm={}", clip.clipnorm);
  if (clip.global_clipnorm > 0) text += fmt::format(", global_clipnorm={}", clip.global_clipnorm);
  return text + ")";
}

}  // namespace muster
