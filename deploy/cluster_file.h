// Reads a file with the cluster of a job. The file is the same on each host.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"
#include "muster/status.h"

namespace muster {

// Reads {"chief": [...], "worker": [...]}, or a whole TF_CONFIG. Errors are ConfigurationErrors.
absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path);

}  // namespace muster
