// Selects the local addresses on which a server listens. The cluster spec contains the address that
// other tasks dial to reach this task. This address may belong to this host (such as the DNS name
// of a pod), or to a NAT or a Kubernetes service in front of this host.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct ListenPlan {
  std::vector<std::string> addresses;  // Numeric "ip:port"s of this host.
  std::string note;  // A log line if the server listens on all interfaces, else empty.
};

// Resolves `address`, "host:port", to the local addresses on which this process can listen. If the
// host name does not resolve or has no local address, returns the wildcard address, for all
// interfaces. If the port is in use, retries until `timeout` has passed. Returns a
// ConfigurationError that names `address` if the port stays in use or cannot be bound. PlanListen
// closes the sockets that it binds.
absl::StatusOr<ListenPlan> PlanListen(const std::string& address, Duration timeout);

}  // namespace muster::rpc
