// Decides on which local addresses a server listens. A cluster spec has the address that peers dial
// to reach a task. The address may be of this host (a pod's own name), or of a NAT or a Kubernetes
// service in front of it.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct ListenPlan {
  std::vector<std::string> addresses;  // Numeric "ip:port"s of this host.
  std::string note;  // A line for the log if the server listens on all interfaces, else empty.
};

// Resolves "host:port" to the local addresses on which this process can listen now. Returns all
// interfaces if the name does not resolve or has no local address. If the port is in use, retries
// until `timeout` has passed. Returns a ConfigurationError that names the address if the port is
// still in use then, or if it can never be bound. Leaves no socket bound.
absl::StatusOr<ListenPlan> PlanListen(const std::string& address, Duration timeout);

}  // namespace muster::rpc
