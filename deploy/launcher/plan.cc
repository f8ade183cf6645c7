#include "deploy/launcher/plan.h"

#include <fmt/format.h>

namespace muster::launcher {

std::string PlannedTask::Id() const { return fmt::format("{}:{}", type, index); }
std::string PlannedTask::Name() const { return fmt::format("{} {}", type, index); }
std::string PlannedTask::Binary() const { return "muster-" + type; }

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
  auto add = [&](const std::string& type, int count) {
    for (int i = 0; i < count; ++i) {
      tasks.push_back({type, i, fmt::format("127.0.0.1:{}", ports.at(tasks.size()))});
    }
  };
  add("chief", size.chief ? 1 : 0);
  add("worker", size.workers);
  add("ps", size.ps);
  add("evaluator", size.evaluator ? 1 : 0);
  tasks.front().lead = true;
  return tasks;
}

std::string TfConfigFor(const std::vector<PlannedTask>& cluster, const PlannedTask& task) {
  Json spec = Json::object();
  for (const PlannedTask& member : cluster) spec[member.type].push_back(member.address);
  const Json config = {{"cluster", spec}, {"task", {{"type", task.type}, {"index", task.index}}}};
  return config.dump();
}

}  // namespace muster::launcher
