// The cluster and this process's task in it, from TF_CONFIG or another launch environment. main
// reads the configuration once and passes it down.
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

// A cluster with Kubeflow's enableDynamicWorker. The launcher gives each task a different part of
// the cluster and no number of members. Muster can print such a configuration but not start it.
struct DynamicCluster {
  std::map<int, Address> worker;  // By index: only this task's address, or none.
  std::vector<Address> ps;        // All addresses, or only this task's.
};

struct ClusterConfig {
  ClusterSpec cluster;  // Empty: there is no cluster, and this process trains alone.
  // This process's task. Absent: there is no cluster. `cluster` may lack the task of an evaluator.
  std::optional<TaskId> task;
  std::optional<std::string> environment;  // TF_CONFIG's "environment". Kubeflow sets "cloud".
  std::vector<std::string> warnings;  // One sentence about each accepted but suspicious setting.
  std::optional<DynamicCluster> dynamic;  // If set, `cluster` is empty.
  // This process's TLS identity (IdentityFor in common/process/task_identity.h). Null: connections
  // are plaintext.
  std::shared_ptr<security::Identity> identity;

  // Returns true without a cluster. The process is then its own chief.
  bool local() const { return !task; }
  // Returns the task's type, with two exceptions. Worker 0 of a cluster without a chief has role
  // kChief, and so does a local process.
  TaskType role() const;
  // Returns the task's index in ClusterSpec::Members(). Returns 0 when local, nullopt for ps,
  // evaluators and dynamic clusters.
  std::optional<int> rank() const;
  // Returns the number of chiefs and workers. Returns 1 when local, nullopt for dynamic clusters.
  std::optional<int> world_size() const;
  // Returns the task with the chief's role. Returns nullopt when local, or if the spec has none.
  std::optional<TaskId> chief() const;
  // Returns "worker 1", or "local".
  std::string Who() const;
};

// Parses a TF_CONFIG. Unset, empty and `{}` mean a local process. A ConfigurationError names the
// field and the value, and says how to fix it. docs/tf_config.md lists accepted and refused forms.
absl::StatusOr<ClusterConfig> ParseTfConfig(const std::optional<std::string>& text);

// Environment variables. Returns a variable's value, or nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();
// Reads the cluster from the variables of a known launcher. Tries the launchers in order and uses
// the first one whose variables are set. Without one, the process is local.
absl::StatusOr<ClusterConfig> ClusterFromEnvironment(const Environment& environment);

// The binaries of the roles run the following two checks when they start, in this order.
//
// Checks that the binary for the role `binary` may run this task. The error names the right binary.
// muster-worker may run worker 0 of a cluster without a chief, which then has role() kChief.
// muster-worker and muster-chief may run a local process.
absl::Status CheckBinary(const ClusterConfig& config, TaskType binary);
// Checks that the cluster has tasks of the types that the strategy needs, and of no others.
absl::Status CheckStrategy(const ClusterConfig& config, StrategyKind strategy);
// Returns the name of the binary that runs tasks of `type`, such as "muster-worker".
std::string BinaryName(TaskType type);

}  // namespace muster
