// Decides where a server listens. A cluster spec names each task by the address that peers use. The
// name may be an interface of this host (a pod's own name) or of something in front of it (a NAT, a
// service). PlanListen finds out which.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct ListenPlan {
  std::vector<std::string> addresses;  // Numeric ip:port, all of this host.
  std::string note;                    // A line for the log if all interfaces are used, else empty.
};

// Finds the addresses behind "host:port" on which this process can listen now. These are all
// interfaces if the name does not resolve or is not a local interface. A port in use is retried
// until `timeout` has passed. Returns a ConfigurationError that names the address after that, or if
// it can never be bound. Nothing stays bound.
absl::StatusOr<ListenPlan> PlanListen(const std::string& address, Duration timeout);

}  // namespace muster::rpc
