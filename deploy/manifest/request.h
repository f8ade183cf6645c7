// The request to `muster manifest`, and the roles and names that follow from it. Value types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/cluster_spec.h"
#include "common/cluster/task.h"

namespace muster {

// The kind of object that starts the pods: Kubernetes' own Jobs, Kubeflow's TFJob, or a JobSet.
enum class ManifestOperator { kNone, kTfJob, kJobSet };
inline constexpr std::string_view kManifestOperatorNames[] = {"none", "tfjob", "jobset"};

struct ManifestRequest {
  int workers = 0, ps = 0;
  int gpus = 0;  // GPUs of each task that computes steps.
  bool evaluator = true;
  bool chief_computes = true;  // False with parameter servers.
  bool preflight = false;      // The pods run `muster preflight` instead of their tasks.
  ManifestOperator manifest_operator = ManifestOperator::kNone;
  std::string image;
  std::string job;                     // The content of the job file.
  std::vector<std::string> overrides;  // The values of --set, for all tasks.
  std::string run_key;                 // The content of a key file. Empty: no Secret is made.
  std::string queue;                   // The LocalQueue of Kueue. Empty: none.
  std::string storage = "5Gi", storage_class;
  std::string tensorboard;  // The image of TensorBoard. Empty: none.

  int members() const { return 1 + workers + ps; }  // REQUIRES: CheckRequest accepts it.
  // Returns true if a pod other than the chief's mounts the volume, perhaps on another node.
  bool shares_volume() const { return !tensorboard.empty(); }
};

// The tasks of one type.
struct PodRole {
  TaskType type = TaskType::kChief;
  int count = 1;
  bool computes = false;  // The tasks compute steps, and therefore use GPUs.
  std::string Name() const { return std::string(TaskTypeName(type)); }
  bool listens() const { return type == TaskType::kChief || type == TaskType::kPs; }
};

inline constexpr char kManifestName[] = "muster";                 // In objects, hosts and labels.
inline constexpr char kRunKeySecret[] = "muster-run-key";         // Has the file run.key.
inline constexpr char kModelDirMount[] = "/var/lib/muster";       // For the chief's volume.
inline constexpr char kRunKeyFile[] = "/etc/muster-key/run.key";  // In each pod.
inline constexpr int kPodPort = 2222;
inline constexpr int kPodUser = 65532;  // Also the group.

// Returns the name of the PersistentVolumeClaim of model_dir.
std::string ModelDirClaim();
// Returns the roles that have pods: chief, workers, evaluator, ps.
std::vector<PodRole> RolesOf(const ManifestRequest& request);
// Returns the cluster for TF_CONFIG. An operator that sets TF_CONFIG itself uses other host names,
// but the same number of tasks.
ClusterSpec PodCluster(const ManifestRequest& request);

}  // namespace muster
