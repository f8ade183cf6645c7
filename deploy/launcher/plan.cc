#include "deploy/launcher/plan.h"

#include <fmt/format.h>

#include "common/cluster/cluster_config.h"

namespace muster::launcher {

std::string PlannedTask::Id() const { return TaskId{type, index}.ToString(); }
std::string PlannedTask::Name() const { return TaskId{type, index}.DisplayName(); }
std::string PlannedTask::Binary() const { return BinaryName(type); }

absl::Status Check(const ClusterSize& size) {
  if (size.workers < 0 || size.ps < 0) {
    return ConfigurationError(fmt::format(
        "--workers and --ps must not be negative, but they are {} and {}", size.workers, size.ps));
  }
  if (!size.chief && size.workers == 0) {
    return ConfigurationError(
        "--no-chief needs a worker to be the chief in its place: give --workers 1 or more");
  }
  if (size.ps > 0 && size.workers == 0) {
    return ConfigurationError(
        "parameter servers without workers would train nothing: give --workers 1 or more");
  }
  // Every process needs a port and some memory, so a larger number is probably a typing error.
  constexpr int kMaxProcesses = 1000;
  if (size.processes() > kMaxProcesses) {
    return ConfigurationError(fmt::format("{} processes on one host are too many (at most {})",
                                          size.processes(), kMaxProcesses));
  }
  return absl::OkStatus();
}

std::vector<PlannedTask> PlanCluster(const ClusterSize& size, const std::vector<int>& ports) {
  std::vector<PlannedTask> tasks;
  auto add = [&](TaskType type, int count) {
    for (int i = 0; i < count; ++i) {
      tasks.push_back({type, i, fmt::format("127.0.0.1:{}", ports.at(tasks.size()))});
    }
  };
  add(TaskType::kChief, size.chief ? 1 : 0);
  add(TaskType::kWorker, size.workers);
  add(TaskType::kPs, size.ps);
  add(TaskType::kEvaluator, size.evaluator ? 1 : 0);
  tasks.front().lead = true;
  return tasks;
}

std::string TfConfigFor(const std::vector<PlannedTask>& cluster, const PlannedTask& task) {
  Json spec = Json::object();
  for (const PlannedTask& member : cluster)
    spec[std::string(TaskTypeName(member.type))].push_back(member.address);
  const Json config = {{"cluster", spec},
                       {"task", {{"type", TaskTypeName(task.type)}, {"index", task.index}}}};
  return config.dump();
}

}  // namespace muster::launcher
