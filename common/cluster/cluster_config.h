// The cluster and this process's place in it, from TF_CONFIG or another launch environment. Read
// once in main and passed down. A value type.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/cluster_spec.h"
#include "common/cluster/strategy_kind.h"
#include "muster/status.h"

namespace muster {

namespace security {
class Identity;
}

// Kubeflow's enableDynamicWorker. The launcher gives each task a different part of the cluster and
// does not give the number of members. Such a configuration can be printed but not started.
struct DynamicCluster {
  std::map<int, Address> worker;  // By index: this task's own address, or none.
  std::vector<Address> ps;        // All addresses, or this task's own only.
};

struct ClusterConfig {
  ClusterSpec cluster;         // Empty: no cluster, this process trains alone.
  std::optional<TaskId> task;  // Absent: no cluster. An evaluator may be missing from `cluster`.
  std::optional<std::string> environment;  // TF_CONFIG's "environment", "cloud" from Kubeflow.
  std::vector<std::string> warnings;  // One sentence each, about accepted but suspicious settings.
  std::optional<DynamicCluster> dynamic;  // If set, `cluster` is empty.
  // The identity that this process proves to the other tasks. Null: no proof is required
  // (IdentityFor in common/process/task_identity.h).
  std::shared_ptr<security::Identity> identity;

  // True without a cluster: the process is its own chief.
  bool local() const { return !task; }
  // The task's type, with two exceptions. Worker 0 of a cluster without a chief has role kChief,
  // and so does a local process.
  TaskType role() const;
  // The index in Members(). 0 when local, nullopt for ps, evaluators and dynamic clusters.
  std::optional<int> rank() const;
  // The number of chiefs and workers. 1 when local, nullopt for dynamic clusters.
  std::optional<int> world_size() const;
  // The task with the chief's role. nullopt when local or if the spec does not name one.
  std::optional<TaskId> chief() const;
  // "worker 1", or "local".
  std::string Who() const;
};

// Reads a TF_CONFIG. Unset, empty and `{}` mean a local process. Errors are ConfigurationErrors of
// one sentence that names the field, the value and the fix. docs/tf_config.md lists accepted and
// refused forms.
absl::StatusOr<ClusterConfig> ParseTfConfig(const std::optional<std::string>& text);

// The launch environment. Returns a variable's value, or nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();
// Tries the known launch environments in order and uses the first that recognizes its variables.
// Without one, the process is local.
absl::StatusOr<ClusterConfig> ClusterFromEnvironment(const Environment& environment);

// The checks of the role binaries at their start, in this order. Each refusal is one sentence.
//
// Returns OK if the binary for `binary` (muster-chief, ...) may run this task. The refusal names
// the right binary. muster-worker as worker 0 of a cluster without a chief is accepted and has
// role() kChief. A local process is accepted by muster-worker and muster-chief.
absl::Status CheckBinary(const ClusterConfig& config, TaskType binary);
// Returns OK if the cluster has the jobs that the strategy needs, and no others.
absl::Status CheckStrategy(const ClusterConfig& config, StrategyKind strategy);
// The name of the binary that runs `type`, such as "muster-worker".
std::string BinaryName(TaskType type);

}  // namespace muster
