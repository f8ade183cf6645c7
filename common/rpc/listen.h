// Where a server listens. A cluster spec names each task by an address that peers use; whether that
// name is an interface of this host (a pod's own name) or of something in front of it (a NAT, a
// service) is found out here.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct ListenPlan {
  std::vector<std::string> addresses;  // numeric ip:port, all of this host
  std::string note;  // one line for the log where all interfaces are used; else empty
};

// Finds the addresses behind "host:port" on which this process can listen now; all interfaces where
// the name does not resolve or is no local interface. A port in use is tried again until `timeout`
// has passed; then, and for an address that can never be bound, a ConfigurationError that names it.
// Nothing stays bound.
absl::StatusOr<ListenPlan> PlanListen(const std::string& address, Duration timeout);

}  // namespace muster::rpc
