// Selects the network interface on which a task accepts data connections. The job may name the
// interface. The default is the interface of the route to the chief. Needs no LibTorch.
#pragma once

#include <functional>
#include <string>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"

namespace muster {

// Returns the address, "host:port", whose route selects the interface for data connections if the
// job names none. This task then listens on the local address of that route.
std::string DataRoute(const ClusterConfig& config);

// Blocks until the required host names resolve, for at most timeouts.join, or until `give_up`
// returns true. Requires a cluster with a chief.
absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& cluster,
                                                           const std::function<bool()>& give_up);

}  // namespace muster
