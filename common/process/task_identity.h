// The identity that a task proves to the others, from its job file, its environment and its cluster
// (docs/security.md). Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/security/identity.h"

namespace muster {

// Returns the first that applies: certificates (tls.certificate), security.key_file, the key that
// `muster launch` passes on, security.insecure, $MUSTER_RUN_KEY_FILE, ~/.config/muster/run.key.
// Returns null if no proof is needed: the job says so, the process is alone, or all addresses are
// literally the loopback. If a cluster has no identity, the ConfigurationError lists the fixes.
// Otherwise the error says what is wrong with a key or certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job);

// Resolves a path of the job file against `folder`, and replaces "{type}" and "{index}" by the
// task's. The launcher uses "launcher" and 0.
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder);

// Returns the cluster's first host that is not literally the loopback, or "" if all are.
std::string FirstHostAbroad(const ClusterSpec& cluster);

}  // namespace muster
