#include "deploy/ranks/ranked_cluster.h"

#include <fmt/format.h>

#include "muster/json.h"

namespace muster::ranks {
namespace {

struct Counts {
  TaskType type;
  int count;
};

absl::StatusOr<std::vector<Counts>> CountsOf(int processes, const RankRoles& roles) {
  if (roles.ps < 0) return ConfigurationError(fmt::format("--ps is {}: give 0 or more", roles.ps));
  const int others = roles.ps + (roles.evaluator ? 1 : 0);
  const int chief = roles.chief ? 1 : 0;
  // A chief trains too, unless there are parameter servers.
  const int fewest = others + chief + (roles.ps > 0 || !roles.chief ? 1 : 0);
  if (processes < fewest) {
    return ConfigurationError(fmt::format(
        "the launcher starts {} process{}, and the tasks need {}: {}{} ps, {} evaluator, and at "
        "least one worker",
        processes, processes == 1 ? "" : "es", fewest, roles.chief ? "a chief, " : "", roles.ps,
        roles.evaluator ? 1 : 0));
  }
  return std::vector<Counts>{{TaskType::kChief, chief},
                             {TaskType::kWorker, processes - others - chief},
                             {TaskType::kPs, roles.ps},
                             {TaskType::kEvaluator, roles.evaluator ? 1 : 0}};
}

}  // namespace

absl::StatusOr<std::string> TfConfigOf(const Ranks& ranks, const RankRoles& roles) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Counts> jobs,
                          CountsOf(static_cast<int>(ranks.addresses.size()), roles));
  Json cluster = Json::object(), task;
  int rank = 0;
  for (const auto& [type, count] : jobs) {
    const std::string name(TaskTypeName(type));
    for (int index = 0; index < count; ++index, ++rank) {
      cluster[name].push_back(ranks.addresses[static_cast<size_t>(rank)].ToString());
      if (rank == ranks.rank) task = {{"type", name}, {"index", index}};
    }
  }
  return Json({{"cluster", cluster}, {"task", task}}).dump();
}

}  // namespace muster::ranks
