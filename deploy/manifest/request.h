// The request to `muster manifest`, and the roles and names of the resulting Kubernetes objects.
// Value types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/cluster_spec.h"
#include "common/cluster/task.h"

namespace muster {

// The kind of Kubernetes object that starts the pods: Jobs, Kubeflow's TFJob, or a JobSet.
enum class ManifestOperator { kNone, kTfJob, kJobSet };
inline constexpr std::string_view kManifestOperatorNames[] = {"none", "tfjob", "jobset"};

struct ManifestRequest {
  int workers = 0, ps = 0;
  int gpus = 0;  // The number of GPUs of each task that computes steps.
  bool evaluator = true;
  bool chief_computes = true;  // False with parameter servers.
  bool preflight = false;      // True: the pods run `muster preflight`.
  ManifestOperator manifest_operator = ManifestOperator::kNone;
  std::string image;
  std::string job;                     // The content of the job file.
  std::vector<std::string> overrides;  // The values of --set, for all tasks.
  std::string run_key;                 // The text of a run key file. Empty: no Secret.
  std::string queue;                   // The name of Kueue's LocalQueue, or "".
  std::string storage = "5Gi", storage_class;
  std::string tensorboard;  // The image of TensorBoard. Empty: no TensorBoard runs.

  int members() const { return 1 + workers + ps; }  // REQUIRES: CheckRequest is OK.
  // Returns true if a pod besides the chief's pod mounts the volume. This pod may be on another
  // node.
  bool shares_volume() const { return !tensorboard.empty(); }
};

// A role: all tasks of one type.
struct PodRole {
  TaskType type = TaskType::kChief;
  int count = 1;
  bool computes = false;  // True if the tasks compute steps, and therefore use GPUs.
  std::string Name() const { return std::string(TaskTypeName(type)); }
  bool listens() const { return type == TaskType::kChief || type == TaskType::kPs; }
};

inline constexpr char kManifestName[] = "muster";                 // Used in names and labels.
inline constexpr char kRunKeySecret[] = "muster-run-key";         // A Secret with the file run.key.
inline constexpr char kModelDirMount[] = "/var/lib/muster";       // Where pods mount the volume.
inline constexpr char kRunKeyFile[] = "/etc/muster-key/run.key";  // The path in each pod.
inline constexpr int kPodPort = 2222;
inline constexpr int kPodUser = 65532;  // The user id and the group id.

// Returns the name of the PersistentVolumeClaim of model_dir.
std::string ModelDirClaim();
// Returns the roles that have pods, in the order chief, worker, evaluator, ps.
std::vector<PodRole> RolesOf(const ManifestRequest& request);
// Returns the cluster for TF_CONFIG. With a TFJob, Kubeflow's operator sets TF_CONFIG, with other
// host names but the same tasks.
ClusterSpec PodCluster(const ManifestRequest& request);

}  // namespace muster
