// The host of this process, and the addresses of this host and of peers.
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
  // loopback. The id consists of the boot id, the IPC and network namespaces, and the instance of
  // /dev/shm.
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

// Returns the local IP address from which this host would connect to `address`. With the chief's
// address, this is the interface of the control connection, which data connections should use, too.
// Returns PeerLost if the name does not resolve (yet) or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);
// Retries LocalAddressTowards until it succeeds, because names in a cluster may appear late.
// Returns DeadlinePassed after `timeout`. Calls `give_up` between attempts, and returns Preempted
// once it returns true.
absl::StatusOr<std::string> WaitForLocalAddressTowards(
    const std::string& address, Duration timeout, const std::function<bool()>& give_up = nullptr);

enum class PortState { kOpen, kRefused, kUnknown };
// Tries to connect to the numeric "ip:port". Returns kRefused if the host refuses the connection,
// because no process listens on the port.
PortState ProbePort(const std::string& address, Duration timeout);
// Probes many addresses in parallel. `timeout` applies to all of them together.
std::vector<PortState> ProbePorts(const std::vector<std::string>& addresses, Duration timeout);
// Probes a "host:port" with a host name. Returns kRefused if all addresses of the name refuse the
// connection, and kUnknown if the name does not resolve.
PortState ProbeNamedPort(const std::string& address, Duration timeout);

}  // namespace muster::rpc
