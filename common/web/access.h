// Who may read what a task serves over HTTP, as the cluster and the job say.
#pragma once

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/web/http_server.h"

namespace muster::web {

// Returns the options for a server of this task on `port`: where to listen (status.address), and
// who may read. Everybody may if the process has no identity, or if all addresses of the cluster
// and the server's own are loopback addresses.
HttpOptions OptionsFor(const ClusterConfig& cluster, const Job& job, int port);
// Returns true if everybody on the network may read, although the cluster is on the loopback:
// status.address is not, and there is no key. The log must say so. (Where security.insecure is set
// for a cluster that spans hosts, it does.)
bool IsOpen(const ClusterConfig& cluster, const HttpOptions& options);

// Returns the port of /metrics of this task: status.metrics_port plus the number of tasks on the
// same host before it, in the order of the cluster. An evaluator that the cluster does not list
// comes after all tasks of the cluster, unless TF_CONFIG's "environment" is "cloud": each task then
// has a host of its own. Returns 0 if metrics_port is 0, and ConfigurationError above 65535.
absl::StatusOr<int> MetricsPort(const ClusterConfig& cluster, const Job& job);

}  // namespace muster::web
