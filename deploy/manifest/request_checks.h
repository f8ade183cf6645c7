// Checks of what `muster manifest` is asked for, apart from the job.
#pragma once

#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// Returns an error that names the first option whose value no cluster would take.
absl::Status CheckRequest(const ManifestRequest& request);
// Returns an error if the ConfigMap is larger than Kubernetes allows. REQUIRES: `job` is set.
absl::Status CheckConfigMapSize(const ManifestRequest& request);

}  // namespace muster
