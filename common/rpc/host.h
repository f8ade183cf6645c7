// The identity of this host, and functions for network addresses and ports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct HostIdentity {
  std::string name;  // The host's name, for messages.
  int64_t pid = 0;
  // Two processes have the same id if and only if they can share memory and reach each other by
  // loopback. The id consists of the boot id, the IPC and network namespaces, and the device number
  // of /dev/shm.
  std::string id;
  std::vector<int> cpus;  // The cores that this process may use (sched_getaffinity).
};
HostIdentity ThisHost();

struct HostPort {
  std::string host;  // A name, or an IP address without brackets.
  int port = 0;
};
// Parses addresses such as "host:5", "10.0.0.1:5" and "[::1]:5".
absl::StatusOr<HostPort> SplitHostPort(const std::string& address);
// Returns "host:port", with an IPv6 address in brackets.
std::string JoinHostPort(const std::string& host, int port);

// Returns the local IP address from which this host would connect to `address`. Tasks pass the
// chief's address, so that data connections use the same interface as the connection to the chief.
// Returns PeerLost if the host name does not resolve or no route exists.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);
// Retries LocalAddressTowards until it succeeds, because a host of the cluster may get its DNS name
// after this task has started. Returns DeadlinePassed after `timeout`. Calls `give_up` after each
// failed attempt, and returns Preempted when `give_up` returns true.
absl::StatusOr<std::string> WaitForLocalAddressTowards(
    const std::string& address, Duration timeout, const std::function<bool()>& give_up = nullptr);

enum class PortState { kOpen, kRefused, kUnknown };
// Tries to connect to each numeric "ip:port", in parallel. A state is kRefused if the host refuses
// the connection, because no process listens on the port. A state is kUnknown after `timeout` or
// any other error. Returns after `timeout` at the latest.
std::vector<PortState> ProbePorts(const std::vector<std::string>& addresses, Duration timeout);
// Probes all addresses of the host name in "host:port". Returns the first state other than
// kRefused, or kRefused if all addresses refuse. Returns kUnknown if the name does not resolve.
PortState ProbeNamedPort(const std::string& address, Duration timeout);

}  // namespace muster::rpc
