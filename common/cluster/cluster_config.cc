#include "common/cluster/cluster_config.h"

#include <algorithm>
#include <cstdlib>

namespace muster {

TaskType ClusterConfig::role() const {
  if (local()) return TaskType::kChief;
  return chief() == task ? TaskType::kChief : task->type;
}

std::optional<int> ClusterConfig::rank() const {
  if (local()) return 0;
  const std::vector<TaskId> members = cluster.Members();
  const auto it = std::find(members.begin(), members.end(), *task);
  if (it == members.end()) return std::nullopt;
  return static_cast<int>(it - members.begin());
}

std::optional<int> ClusterConfig::world_size() const {
  if (local()) return 1;
  if (dynamic) return std::nullopt;
  return static_cast<int>(cluster.Members().size());
}

std::optional<TaskId> ClusterConfig::chief() const { return cluster.Coordinator(); }

std::string ClusterConfig::Who() const { return local() ? "local" : task->DisplayName(); }

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

absl::StatusOr<ClusterConfig> ClusterFromEnvironment(const Environment& environment) {
  // Reads the cluster from the variables of one launcher. Returns nullopt if they are not set. The
  // most explicit launcher comes first in the list.
  using Source = std::function<std::optional<absl::StatusOr<ClusterConfig>>(const Environment&)>;
  static const Source kSources[] = {
      [](const Environment& get) -> std::optional<absl::StatusOr<ClusterConfig>> {
        const std::optional<std::string> text = get("TF_CONFIG");
        if (!text) return std::nullopt;
        return ParseTfConfig(text);
      },
  };
  for (const Source& source : kSources) {
    if (auto config = source(environment)) return *std::move(config);
  }
  return ClusterConfig{};
}

}  // namespace muster
