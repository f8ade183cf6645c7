// Builds the pod template and the Job of a role (PodRole in request.h). Pure functions. k8s/base
// and its overlays have the same objects for a cluster of one particular size.
// tests/k8s/manifest_command_test.py checks that these functions return the same objects as k8s/.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"
#include "deploy/manifest/request.h"

namespace muster {

// PodSecurity returns the securityContext of a pod, and ContainerSecurity returns the one of a
// container. `mounts_model_dir` is true if the pod mounts the volume with the model_dir.
OrderedJson PodSecurity(bool mounts_model_dir);
OrderedJson ContainerSecurity();
// Returns the labels of a role's Job and pods.
OrderedJson RoleLabels(const PodRole& role);
// Returns the `spec` of the Job of a role. `config_map` is the name of the ConfigMap that contains
// job.json and cluster.json.
OrderedJson JobSpec(const ManifestRequest& request, const PodRole& role,
                    const std::string& config_map);
// Returns the pod template of a role. For a TFJob, the template has neither host names nor
// TF_CONFIG, because Kubeflow's operator adds them.
OrderedJson PodTemplate(const ManifestRequest& request, const PodRole& role,
                        const std::string& config_map);

}  // namespace muster
