// How a task proves to the others who it is: from its job file, its environment and its cluster
// (docs/security.md). Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/cluster/cluster_config.h"
#include "common/security/identity.h"
#include "common/train/job.h"

namespace muster {

// In this order: certificates (tls.certificate), security.key_file, the key that `muster launch`
// passes on, security.insecure, $MUSTER_RUN_KEY_FILE, ~/.config/muster/run.key. Null: nobody has to
// prove anything, because the job says so, the process is alone, or all addresses are literally the
// loopback. A ConfigurationError names the mends where a cluster has nothing, and what is wrong
// with a key or certificate.
absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job);

// A path in the job file, in which "{type}" and "{index}" are the task's; the launcher's are
// "launcher" and 0.
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder);

// The first of the cluster's hosts that is not literally the loopback; "" where all are.
std::string FirstHostAbroad(const ClusterSpec& cluster);

}  // namespace muster
