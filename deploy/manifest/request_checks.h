// Checks a request to `muster manifest`. job_on_pods.h checks the job of the request.
#pragma once

#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// If an option has a value that no Kubernetes cluster would accept, returns an error that names the
// option.
absl::Status CheckRequest(const ManifestRequest& request);
// Returns an error if the ConfigMap is larger than Kubernetes allows. REQUIRES: request.job is set.
absl::Status CheckConfigMapSize(const ManifestRequest& request);

}  // namespace muster
