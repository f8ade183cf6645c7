// Reads a file that lists the addresses of all tasks of a job. All hosts can have the same file.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"
#include "muster/status.h"

namespace muster {

// The file contains {"chief": [...], "worker": [...]}, or a whole TF_CONFIG. Errors are
// ConfigurationErrors (muster/status.h).
absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path);

}  // namespace muster
