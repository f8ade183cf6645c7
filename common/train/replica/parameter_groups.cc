#include "common/train/replica/parameter_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "common/train/observer.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

// Returns, by parameter, all names that a glob may match: with the model's name as a prefix and,
// for a program's only model, also without it as in checkpoints.
std::vector<std::vector<std::string>> NamesOf(const NamedOptimizer& optimizer,
                                              const Replica& replica) {
  std::vector<std::vector<std::string>> names = optimizer.candidate_aliases;
  if (replica.models().size() > 1) return names;
  const size_t prefix = replica.models().front().name.size() + 1;
  for (std::vector<std::string>& of_parameter : names)
    for (size_t i = 0, count = of_parameter.size(); i < count; ++i)
      of_parameter.push_back(of_parameter[i].substr(prefix));
  return names;
}

// Returns "the nearest names are a, b", or the existing names if none is near.
std::string Suggestion(const OptimizerGroup& group,
                       const std::vector<const NamedOptimizer*>& optimizers,
                       const Replica& replica) {
  std::vector<std::string> names, nearest;
  for (const NamedOptimizer* optimizer : optimizers)
    for (const auto& of_parameter : NamesOf(*optimizer, replica))
      names.push_back(of_parameter.back());
  std::vector<std::string> left = names;
  while (nearest.size() < 3) {
    const std::string next = Nearest(group.parameters.front(), left);
    if (next.empty()) break;
    nearest.push_back(next);
    std::erase(left, next);
  }
  if (!nearest.empty()) return fmt::format("the nearest names are {}", fmt::join(nearest, ", "));
  const bool all = names.size() <= 6;
  names.resize(std::min<size_t>(names.size(), 6));
  return fmt::format("the names are {}{}", fmt::join(names, ", "), all ? "" : ", ...");
}

// Checks the groups of a spec. Several optimizers may have the same spec, because the job sets it
// once for all of them.
absl::Status CheckGroups(const std::vector<const NamedOptimizer*>& optimizers,
                         const OptimizerSpec& spec, const Replica& replica) {
  std::vector<int> matches, members(spec.groups.size() + 1);
  for (const NamedOptimizer* optimizer : optimizers) {
    (void)AssignGroups(spec, NamesOf(*optimizer, replica), &matches);
    for (const int group : optimizer->candidate_groups) ++members[group];
  }
  std::vector<std::string> owners;
  for (const NamedOptimizer* optimizer : optimizers) owners.push_back(Json(optimizer->name).dump());
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    const std::string which = fmt::format("optimizer.groups[{}].parameters {}", g,
                                          Json(spec.groups[g].parameters).dump());
    if (matches[g] == 0)
      return ConfigurationError(fmt::format("{} matches no parameter of optimizer {}: {}", which,
                                            fmt::join(owners, ", "),
                                            Suggestion(spec.groups[g], optimizers, replica)));
    if (members[g + 1] == 0)
      return ConfigurationError(
          fmt::format("{} matches only parameters that are in groups before it, of which the first "
                      "counts: put it before them",
                      which));
  }
  return absl::OkStatus();
}

std::string Counted(const NamedOptimizer& optimizer, int group) {
  int64_t parameters = 0, numbers = 0;
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    if (optimizer.groups[i] != group) continue;
    ++parameters;
    numbers += optimizer.rule->parameters()[i].numel();
  }
  return fmt::format("{} parameter{}, {} number{}", parameters, parameters == 1 ? "" : "s", numbers,
                     numbers == 1 ? "" : "s");
}

}  // namespace

void AddParameters(const NamedModel& model, NamedOptimizer* optimizer) {
  for (const auto& [name, parameter] : model.parameters) {
    const std::string whole = model.name + "." + name;
    std::vector<at::Tensor>& tensors = optimizer->candidates;
    const auto same = std::find_if(tensors.begin(), tensors.end(),
                                   [&](const auto& tensor) { return tensor.is_same(parameter); });
    if (same != tensors.end()) {
      optimizer->candidate_aliases[same - tensors.begin()].push_back(whole);
      continue;
    }
    tensors.push_back(parameter);
    optimizer->candidate_names.push_back(whole);
    optimizer->candidate_aliases.push_back({whole});
  }
}

ParameterCount CountParameters(const NamedModel& model) {
  ParameterCount count;
  std::unordered_set<const void*> seen;
  for (const auto& [name, parameter] : model.parameters) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    (parameter.requires_grad() ? count.trained : count.frozen) += parameter.numel();
  }
  return count;
}

Json WithProgramGroups(const Json& of_job, const Json& of_program) {
  const bool names_none = of_job.is_string() || (of_job.is_object() && !of_job.contains("groups"));
  if (!names_none || !of_program.is_object() || !of_program.contains("groups")) return of_job;
  Json both = of_job.is_string() ? Json::object({{"name", of_job}}) : of_job;
  both["groups"] = of_program["groups"];
  return both;
}

absl::Status MakeRules(Replica* replica) {
  for (size_t o = 0; o < replica->optimizers().size(); ++o) {
    NamedOptimizer& optimizer = replica->optimizers()[o];
    const auto parsed = ParseOptimizer(optimizer.spec);
    const bool by_groups = !parsed.ok() && optimizer.spec.is_object() &&
                           optimizer.spec.contains("groups") &&
                           ParseOptimizer(OptimizerOfGroup(optimizer.spec, 0)).ok();
    if (by_groups)
      return ConfigurationError(
          fmt::format("{} (optimizer \"{}\"; \"groups\" in the job replace the program's, [] are "
                      "none)",
                      Message(parsed.status()), optimizer.name));
    MUSTER_RETURN_IF_ERROR(parsed.status());
    const OptimizerSpec& spec = *parsed;
    if (ForTablesAlone(spec.rule))
      return ConfigurationError(fmt::format(
          "optimizer \"{}\" is \"rowwise_adagrad\", which is for embedding tables alone: name it "
          "by the table, as {{\"optimizer\": {{\"users\": \"rowwise_adagrad\"}}}}, or use "
          "\"adagrad\"",
          optimizer.name));
    std::vector<int> matches;
    optimizer.candidate_groups = AssignGroups(spec, NamesOf(optimizer, *replica), &matches);
    std::vector<bool> trained;
    for (const at::Tensor& candidate : optimizer.candidates)
      trained.push_back(candidate.requires_grad());
    MUSTER_RETURN_IF_ERROR(replica->optimizer_set().MakeRule(static_cast<int>(o), trained));
  }
  for (const NamedOptimizer& optimizer : replica->optimizers()) {
    MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec spec, ParseOptimizer(optimizer.spec));
    if (spec.groups.empty()) continue;
    std::vector<const NamedOptimizer*> alike;
    for (const NamedOptimizer& other : replica->optimizers())
      if (other.spec == optimizer.spec) alike.push_back(&other);
    MUSTER_RETURN_IF_ERROR(CheckGroups(alike, spec, *replica));
  }
  return absl::OkStatus();
}

std::vector<std::string> DescribeGroups(const Replica& replica) {
  std::vector<std::string> lines;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    const auto spec = ParseOptimizer(optimizer.spec);
    if (!spec.ok() || spec->groups.empty()) continue;
    for (size_t g = 0; g < spec->groups.size(); ++g) {
      const OptimizerGroup& group = spec->groups[g];
      lines.push_back(fmt::format("optimizer \"{}\", group {} ({}{}{}): {}", optimizer.name, g + 1,
                                  fmt::join(group.parameters, ", "), group.text.empty() ? "" : ": ",
                                  group.text, Counted(optimizer, static_cast<int>(g) + 1)));
    }
    lines.push_back(
        fmt::format("optimizer \"{}\", in no group: {}", optimizer.name, Counted(optimizer, 0)));
  }
  return lines;
}

void DescribeModels(const Replica& replica, StartReport* report) {
  for (const NamedModel& model : replica.models()) {
    for (const auto& [name, parameter] : model.parameters) {
      report->parameters.push_back(
          {model.name, name, parameter.sizes().vec(), parameter.requires_grad()});
    }
    const ParameterCount count = CountParameters(model);
    report->parameter_counts.emplace_back(model.name, count.trained + count.frozen);
  }
  report->groups = DescribeGroups(replica);
}

}  // namespace muster
