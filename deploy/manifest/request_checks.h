// Checks the request to `muster manifest`, except for the job.
#pragma once

#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// Returns an error that names the first option whose value no cluster would accept.
absl::Status CheckRequest(const ManifestRequest& request);
// Returns an error if the ConfigMap is larger than Kubernetes allows. REQUIRES: `job` is set.
absl::Status CheckConfigMapSize(const ManifestRequest& request);

}  // namespace muster
