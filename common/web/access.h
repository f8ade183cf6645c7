// Computes the access rules and the port of a task's HTTP server from the cluster and the job.
#pragma once

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/web/http_server.h"

namespace muster::web {

// Returns the options for an HTTP server of this task that listens on `port` of status.address.
// Every client may read from the server in two cases: the process has no TLS identity, or
// status.address and all addresses of the cluster are loopback addresses. In all other cases,
// clients need a token or a certificate.
HttpOptions OptionsFor(const ClusterConfig& cluster, const Job& job, int port);
// Returns true if all of these hold: the addresses of the cluster are loopback addresses,
// status.address is another address, and clients need no token. Every host on the network may then
// read from the server, so the caller must log a warning. (If the cluster has an address that is
// not loopback, only security.insecure lets clients read without a token. The task has then already
// logged a warning at its start.)
bool IsOpen(const ClusterConfig& cluster, const HttpOptions& options);

// Returns the port of /metrics of this task: status.metrics_port plus the number of earlier tasks
// on the same host, in the order of the cluster. For an evaluator that the cluster does not list,
// all tasks of the cluster and evaluators of lower index count as earlier. If TF_CONFIG's
// "environment" is "cloud", the evaluator has its own host, and its port is status.metrics_port.
// Returns 0 if metrics_port is 0. Returns ConfigurationError for ports above 65535.
absl::StatusOr<int> MetricsPort(const ClusterConfig& cluster, const Job& job);

}  // namespace muster::web
