// The cluster and this process's task in the cluster, from the environment variable TF_CONFIG. main
// reads the configuration once and passes it on.
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

// A cluster with Kubeflow's enableDynamicWorker. Kubeflow tells each task only a part of such a
// cluster, and not the number of workers. Muster can print such a configuration, but cannot run its
// tasks.
struct DynamicCluster {
  std::map<int, Address> worker;  // Keyed by the worker's index. Has at most this task's address.
  std::vector<Address> ps;        // All addresses, or only this task's.
};

struct ClusterConfig {
  ClusterSpec cluster;  // Empty if there is no cluster, or if `dynamic` is set.
  // This process's task. If absent, there is no cluster, and this process trains alone. `cluster`
  // may lack the task if the task is an evaluator.
  std::optional<TaskId> task;
  // The key "environment" of TF_CONFIG. Kubeflow sets "cloud".
  std::optional<std::string> environment;
  std::vector<std::string> warnings;  // One sentence about each accepted but suspicious setting.
  std::optional<DynamicCluster> dynamic;  // If set, `cluster` is empty.
  // This process's TLS identity (IdentityFor in common/process/task_identity.h). Null: connections
  // are plaintext.
  std::shared_ptr<security::Identity> identity;

  // Returns true if there is no cluster. The process is then its own chief.
  bool local() const { return !task; }
  // Returns kChief for worker 0 of a cluster without a chief task, and for a local process. Returns
  // the task's type in all other cases.
  TaskType role() const;
  // Returns the task's index among the chief and the workers (ClusterSpec::Members()). Returns 0
  // for a local process, and nullopt for ps, evaluators and dynamic clusters.
  std::optional<int> rank() const;
  // Returns the number of chiefs and workers. Returns 1 for a local process, and nullopt for
  // dynamic clusters.
  std::optional<int> world_size() const;
  // Returns the task with the chief's role. Returns nullopt for a local process, or if the cluster
  // has no such task.
  std::optional<TaskId> chief() const;
  // Returns "worker 1", or "local".
  std::string Who() const;
};

// Parses the value of TF_CONFIG. If TF_CONFIG is unset (nullopt), empty or `{}`, the process is
// local. Returns a ConfigurationError that names the field and the value, and says how to fix the
// field. docs/tf_config.md lists accepted and refused forms.
absl::StatusOr<ClusterConfig> ParseTfConfig(const std::optional<std::string>& text);

// A function that returns the value of an environment variable, or nullopt if the variable is not
// set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();
// Reads the cluster from the environment variable TF_CONFIG, as ParseTfConfig does.
absl::StatusOr<ClusterConfig> ClusterFromEnvironment(const Environment& environment);

// Each binary that runs tasks makes the following two checks when it starts, in this order.
//
// Checks that the binary for tasks of type `binary` may run this task. The error names the right
// binary. muster-worker may run worker 0 even if the role() of worker 0 is kChief. A local process
// may be muster-worker or muster-chief. A cluster has one evaluator, so only evaluator 0 may run.
absl::Status CheckBinary(const ClusterConfig& config, TaskType binary);
// Checks that the cluster has tasks of all types that the strategy needs, and of no other types.
absl::Status CheckStrategy(const ClusterConfig& config, StrategyKind strategy);
// Returns the name of the binary that runs tasks of `type`, such as "muster-worker".
std::string BinaryName(TaskType type);

}  // namespace muster
