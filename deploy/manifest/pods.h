// The pods of a role, and the Job that keeps them. Pure functions. k8s/base and its overlays have
// the same objects for one size; tests/k8s/manifest_command_test.py compares them.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"
#include "deploy/manifest/request.h"

namespace muster {

// The securityContext of a pod, and of its container. `mounts_model_dir`: the pod has the volume.
OrderedJson PodSecurity(bool mounts_model_dir);
OrderedJson ContainerSecurity();
// The labels of a role's Job and pods.
OrderedJson RoleLabels(const PodRole& role);
// The specification of a Job. `config_map` has job.json and cluster.json.
OrderedJson JobSpec(const ManifestRequest& request, const PodRole& role,
                    const std::string& config_map);
// The template of the pods. For a TFJob it has neither names nor TF_CONFIG: the operator adds them.
OrderedJson PodTemplate(const ManifestRequest& request, const PodRole& role,
                        const std::string& config_map);

}  // namespace muster
