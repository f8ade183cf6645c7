// Finds the identity that a task proves to other tasks, in the job file and the environment
// (docs/security.md). Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/security/identity.h"

namespace muster {

// Makes an identity from the first of these that is present: certificates (tls.certificate),
// security.key_file, the key that `muster launch` passes on, $MUSTER_RUN_KEY_FILE,
// ~/.config/muster/run.key. Returns null for a process without a cluster. Returns null if
// security.insecure is set and the first three are absent. Returns null if nothing is present and
// all addresses are loopback literals. If nothing is present in any other cluster, the
// ConfigurationError lists ways to provide an identity. Other errors describe an invalid key or
// certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job);

// As IdentityFor, for a task that starts. Logs the file of the key or certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityOfTask(const ClusterConfig& cluster,
                                                                   const Job& job);

// Resolves a path of the job file against `folder`, and replaces "{type}" and "{index}" in the
// path. The launcher passes "launcher" and 0.
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder);

// Returns the cluster's first host that is not a loopback literal, or "" if all hosts are.
std::string FirstRemoteHost(const ClusterSpec& cluster);

}  // namespace muster
