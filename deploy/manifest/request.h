// What `muster manifest` is asked for, and the roles and names that follow from it. Value types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/cluster_spec.h"
#include "common/cluster/task.h"

namespace muster {

// Whose objects start the pods: Kubernetes' own Jobs, Kubeflow's TFJob or a JobSet.
enum class ManifestOperator { kNone, kTfJob, kJobSet };
inline constexpr std::string_view kManifestOperatorNames[] = {"none", "tfjob", "jobset"};

struct ManifestRequest {
  int workers = 0, ps = 0;
  int gpus = 0;  // Of each task that computes steps.
  bool evaluator = true;
  bool chief_computes = true;  // False with parameter servers.
  bool preflight = false;      // The pods run `muster preflight` instead of their tasks.
  ManifestOperator manifest_operator = ManifestOperator::kNone;
  std::string image;
  std::string job;                     // The text of the job file.
  std::vector<std::string> overrides;  // For all tasks: the values of --set.
  std::string run_key;                 // The text of a key file. Empty: no Secret is made.
  std::string queue;                   // Kueue's. Empty: none.
  std::string storage = "5Gi", storage_class;
  std::string tensorboard;  // The image of TensorBoard. Empty: none.

  int members() const { return 1 + workers + ps; }  // REQUIRES: CheckRequest accepts it.
  // Whether pods other than the chief mount the volume, from nodes of their own.
  bool shares_volume() const { return !tensorboard.empty(); }
};

// The tasks of one type.
struct PodRole {
  TaskType type = TaskType::kChief;
  int count = 1;
  bool computes = false;  // Steps, and so on GPUs.
  std::string Name() const { return std::string(TaskTypeName(type)); }
  bool listens() const { return type == TaskType::kChief || type == TaskType::kPs; }
};

inline constexpr char kManifestName[] = "muster";                 // Of objects, hosts and labels.
inline constexpr char kRunKeySecret[] = "muster-run-key";         // With the file run.key.
inline constexpr char kModelDirMount[] = "/var/lib/muster";       // Of the chief's volume.
inline constexpr char kRunKeyFile[] = "/etc/muster-key/run.key";  // In each pod.
inline constexpr int kPodPort = 2222;
inline constexpr int kPodUser = 65532;  // Also the group.

// The name of the volume's claim.
std::string ModelDirClaim();
// The roles that have pods: chief, workers, evaluator, ps.
std::vector<PodRole> RolesOf(const ManifestRequest& request);
// The members' names, as TF_CONFIG has them. An operator that makes TF_CONFIG itself uses others,
// in the same number.
ClusterSpec PodCluster(const ManifestRequest& request);

}  // namespace muster
