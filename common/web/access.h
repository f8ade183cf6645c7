// Access rules and ports of a task's HTTP server, from the cluster and the job.
#pragma once

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/web/http_server.h"

namespace muster::web {

// Returns the options for a server of this task on `port`, with the address (status.address) and
// the required identity. The server needs no token or certificate if the process has no identity,
// or if all addresses of the cluster and the server's own are loopback addresses.
HttpOptions OptionsFor(const ClusterConfig& cluster, const Job& job, int port);
// Returns true if every host on the network may read from a task of a loopback cluster:
// status.address is not a loopback address, and the process has no key. The caller must log a
// warning. (A cluster that spans hosts and sets security.insecure logs its own warning.)
bool IsOpen(const ClusterConfig& cluster, const HttpOptions& options);

// Returns the port of /metrics of this task: status.metrics_port plus the number of tasks on the
// same host before it, in the order of the cluster. An evaluator that the cluster does not list
// comes after all tasks of the cluster, unless TF_CONFIG's "environment" is "cloud": each task then
// has a host of its own. Returns 0 if metrics_port is 0, and ConfigurationError above 65535.
absl::StatusOr<int> MetricsPort(const ClusterConfig& cluster, const Job& job);

}  // namespace muster::web
