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

// Returns the first of these that is configured: certificates (tls.certificate), security.key_file,
// the key that `muster launch` passes on, security.insecure, $MUSTER_RUN_KEY_FILE,
// ~/.config/muster/run.key. Returns null if no identity is needed: security.insecure is set, the
// process is alone, or all addresses are loopback literals. If an identity is needed but missing,
// the ConfigurationError lists ways to provide one. Other errors describe an invalid key or
// certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job);

// Resolves a path of the job file against `folder`, and replaces "{type}" and "{index}" in the
// path. The launcher passes "launcher" and 0.
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder);

// Returns the cluster's first host that is not a loopback literal, or "" if all hosts are.
std::string FirstHostAbroad(const ClusterSpec& cluster);

}  // namespace muster
