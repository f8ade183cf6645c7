// Implements CheckBinary and CheckStrategy of cluster_config.h.
#include <fmt/format.h>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

absl::Status CheckStartable(const ClusterConfig& config) {
  if (!config.dynamic) return absl::OkStatus();
  return ConfigurationError(
      "TF_CONFIG: cluster is Kubeflow's dynamic-worker form, in which no task knows how many "
      "members there are: set enableDynamicWorker to false in the TFJob");
}

}  // namespace

std::string BinaryName(TaskType type) { return fmt::format("muster-{}", TaskTypeName(type)); }

absl::Status CheckBinary(const ClusterConfig& config, TaskType binary) {
  if (config.local()) {
    if (binary == TaskType::kChief || binary == TaskType::kWorker) return absl::OkStatus();
    return ConfigurationError(
        fmt::format("TF_CONFIG is not set, so there is no cluster that {} could serve: set it, or "
                    "start {} to train in one process",
                    BinaryName(binary), BinaryName(TaskType::kWorker)));
  }
  if (config.task->type != binary) {
    return ConfigurationError(
        fmt::format("TF_CONFIG: task is {}, but this is {}: start {} for this task",
                    config.task->DisplayName(), BinaryName(binary), BinaryName(config.task->type)));
  }
  MUSTER_RETURN_IF_ERROR(CheckStartable(config));
  if (binary == TaskType::kEvaluator && config.task->index != 0)
    return ConfigurationError(fmt::format(
        "TF_CONFIG: task is {}, but a cluster has one evaluator: start evaluator 0 only",
        config.task->DisplayName()));
  return absl::OkStatus();
}

absl::Status CheckStrategy(const ClusterConfig& config, StrategyKind strategy) {
  MUSTER_RETURN_IF_ERROR(CheckStartable(config));
  const ClusterSpec& cluster = config.cluster;
  const std::string_view name = StrategyName(strategy);
  if (strategy == StrategyKind::kParameterServer) {
    if (cluster.ps.empty()) {
      return ConfigurationError(fmt::format(
          "strategy is \"{}\", but {}: add a \"ps\" job to it, or set strategy to "
          "\"multi_worker_mirrored\"",
          name, config.local() ? "TF_CONFIG names no cluster" : "the cluster has no ps"));
    }
    if (cluster.worker.empty()) {
      return ConfigurationError(
          fmt::format("strategy is \"{}\", in which the chief computes no steps, but the cluster "
                      "has no worker: add a \"worker\" job to it",
                      name));
    }
    return absl::OkStatus();
  }
  if (!cluster.ps.empty()) {
    return ConfigurationError(fmt::format(
        "strategy is \"{}\", which has no use for the {} ps of the cluster: set strategy to "
        "\"parameter_server\", or remove cluster.ps",
        name, cluster.ps.size()));
  }
  const int members = config.world_size().value_or(1);
  if (strategy != StrategyKind::kMultiWorkerMirrored && members > 1) {
    return ConfigurationError(
        fmt::format("strategy is \"{}\", which trains in one process, but the cluster has {} "
                    "members: set strategy to \"multi_worker_mirrored\", or start one task alone",
                    name, members));
  }
  return absl::OkStatus();
}

}  // namespace muster
