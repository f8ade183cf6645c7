// Selects the network interface for a task's data connections, which carry gradients and
// parameters. The job may name the interface. The default is the interface of the route to the
// chief. Needs no LibTorch.
#pragma once

#include <functional>
#include <string>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/listener/data_listener.h"

namespace muster {

// Returns an address ("host:port"). The route to this address determines the default interface.
// This task listens on the local address of the route. In all processes except the chief's, the
// result is the address of the chief. In the chief's process, the route to the chief may be
// loopback. The result is then the address of a task on another host, if there is such a task.
std::string DataRoute(const ClusterConfig& config);

// Returns the options of this task's DataListener. If the job names no interface, blocks until the
// host name of DataRoute resolves. Returns an error after timeouts.join, or if `give_up` returns
// true. REQUIRES: the cluster has a chief.
absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& cluster,
                                                           const std::function<bool()>& give_up);

}  // namespace muster
