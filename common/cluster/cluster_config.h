// What one process knows of its cluster and its own place in it, from TF_CONFIG or another launch
// environment. Read once in main and passed down; a value type.
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

// Kubeflow's enableDynamicWorker: the launcher tells each task another part of the cluster, and
// nobody the number of members. Such a configuration is printed, never started from.
struct DynamicCluster {
  std::map<int, Address> worker;  // by index: the own address, or none
  std::vector<Address> ps;        // all, or the own address only
};

struct ClusterConfig {
  ClusterSpec cluster;         // empty: no cluster, this process trains alone
  std::optional<TaskId> task;  // absent: no cluster. An evaluator may be missing from `cluster`
  std::optional<std::string> environment;  // TF_CONFIG's "environment", "cloud" from Kubeflow
  std::vector<std::string> warnings;       // one sentence each: accepted, but worth a look
  std::optional<DynamicCluster> dynamic;   // then `cluster` is empty
  // How this process proves to the other tasks who it is; null: nobody has to (IdentityFor in
  // common/train/task_identity.h).
  std::shared_ptr<security::Identity> identity;

  // No cluster: one process that is its own chief.
  bool local() const { return !task; }
  // What this task does: its type, but worker 0 of a cluster without a chief is the chief, and so
  // is a local process.
  TaskType role() const;
  // In Members(); 0 when local, nullopt for ps, evaluators and dynamic clusters.
  std::optional<int> rank() const;
  // Chief and workers; 1 when local, nullopt for dynamic clusters.
  std::optional<int> world_size() const;
  // The task that takes the chief's role; nullopt when local or where the spec does not tell.
  std::optional<TaskId> chief() const;
  // "worker 1", or "local".
  std::string Who() const;
};

// Reads a TF_CONFIG. Unset, empty and `{}` are a local process. Errors are ConfigurationErrors of
// one sentence that names the field, the value and the mend. docs/tf_config.md lists what is
// accepted and what is refused.
absl::StatusOr<ClusterConfig> ParseTfConfig(const std::optional<std::string>& text);

// The launch environment: a variable's value, nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();
// Asks the known launch environments in turn; the first that recognises itself decides. None: a
// local process.
absl::StatusOr<ClusterConfig> ClusterFromEnvironment(const Environment& environment);

// What the role binaries check before they start, in this order. Each refusal is one sentence.
//
// Whether the binary for `binary` (muster-chief, ...) may run this task; the refusal says which one
// to start. muster-worker as worker 0 of a cluster without a chief passes and has role() kChief; a
// local process passes as muster-worker and muster-chief.
absl::Status CheckBinary(const ClusterConfig& config, TaskType binary);
// Whether the cluster has the jobs that the strategy needs, and no others.
absl::Status CheckStrategy(const ClusterConfig& config, StrategyKind strategy);
// The name of the program that runs `type`: "muster-worker".
std::string BinaryName(TaskType type);

}  // namespace muster
