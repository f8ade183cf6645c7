// Builds the pod template and the Job of a role. Pure functions. k8s/base and its overlays have the
// same objects for one size; tests/k8s/manifest_command_test.py compares them.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"
#include "deploy/manifest/request.h"

namespace muster {

// Return the securityContext of a pod, and of its container. `mounts_model_dir` is true if the pod
// mounts the volume.
OrderedJson PodSecurity(bool mounts_model_dir);
OrderedJson ContainerSecurity();
// Returns the labels of a role's Job and pods.
OrderedJson RoleLabels(const PodRole& role);
// Returns the specification of a Job. `config_map` is the name of the ConfigMap with job.json and
// cluster.json.
OrderedJson JobSpec(const ManifestRequest& request, const PodRole& role,
                    const std::string& config_map);
// Returns the pod template. For a TFJob it has neither host names nor TF_CONFIG, because the
// operator adds them.
OrderedJson PodTemplate(const ManifestRequest& request, const PodRole& role,
                        const std::string& config_map);

}  // namespace muster
