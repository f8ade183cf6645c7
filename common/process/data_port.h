// Chooses the network interface on which a task accepts data connections. The job can name the
// interface. Otherwise it is the interface of the route to the chief. Needs no LibTorch.
#pragma once

#include <functional>
#include <string>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"

namespace muster {

// Returns the address, "host:port", to which data connections would go. The local address on the
// route to it is that of this task's data connections, if the job names no interface.
std::string DataRoute(const ClusterConfig& config);

// Blocks until the required host names resolve, for at most timeouts.join, or until `give_up`
// returns true. Requires a cluster with a chief.
absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& cluster,
                                                           const std::function<bool()>& give_up);

}  // namespace muster
