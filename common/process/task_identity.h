// Makes the identity with which a task authenticates itself to other tasks (docs/security.md). An
// identity is made from certificates or from a run key, a secret that all tasks of a run share.
// Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/security/identity.h"

namespace muster {

// Makes an identity from the first of these sources that is present:
//   1. The certificates of the job: tls.certificate, tls.key, tls.authority.
//   2. The run key in the file security.key_file.
//   3. The run key that `muster launch` passes to its tasks.
//   4. The run key in the file $MUSTER_RUN_KEY_FILE.
//   5. The run key in DefaultRunKeyPath() (run_key.h), such as ~/.config/muster/run.key.
// If security.insecure is true, only sources 1 to 3 count.
//
// Returns null (connections then have no authentication) in these cases:
//   - The process has no cluster.
//   - security.insecure is true, and none of sources 1 to 3 is present.
//   - No source is present, and all addresses of the cluster are loopback literals.
//
// In all other cases without a source, returns a ConfigurationError that lists the ways to provide
// an identity. Returns an error for an invalid key or certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job);

// Like IdentityFor, but also logs the path of the run key file or of the certificate. Called by a
// task at its start.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityOfTask(const ClusterConfig& cluster,
                                                                   const Job& job);

// Replaces "{type}" by `type` and "{index}" by `index` in a path of the job file. Resolves a
// relative path against `folder`. `muster launch` passes "launcher" and 0 for itself.
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder);

// Returns the cluster's first host that is not a loopback literal, or "" if all hosts are.
std::string FirstRemoteHost(const ClusterSpec& cluster);

}  // namespace muster
