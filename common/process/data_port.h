// Chooses the interface on which a task accepts data connections: the one that the job names, else
// the one of the route to the chief. Needs no LibTorch.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"

namespace muster {

// Waits up to timeouts.join for the required names to resolve, and polls `give_up` meanwhile.
// Requires a cluster with a chief.
absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& cluster,
                                                           const std::function<bool()>& give_up);

}  // namespace muster
