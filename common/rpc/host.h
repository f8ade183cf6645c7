// The identity and the address of this process for its peers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct HostIdentity {
  std::string name;  // The host's name, for people.
  int64_t pid = 0;
  // Equal for two processes if and only if both can map one shared-memory segment and reach each
  // other by loopback. Consists of the boot id, the IPC and network namespaces, and the instance of
  // /dev/shm.
  std::string id;
  std::vector<int> cpus;  // Cores that this process may run on (sched_getaffinity).
};
HostIdentity ThisHost();

struct HostPort {
  std::string host;  // A name or an IP without brackets.
  int port = 0;
};
// Parses "host:port", "10.0.0.1:5", "[::1]:5".
absl::StatusOr<HostPort> SplitHostPort(const std::string& address);
// Puts IPv6 addresses in brackets.
std::string JoinHostPort(const std::string& host, int port);

// Returns the local IP from which this host would connect to `address`. This is the IP of the
// control connection's interface, so data connections should use it, too. Returns PeerLost if the
// name does not resolve (yet) or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);
// As above, with retries for `timeout`, because names in a cluster may appear late. `give_up` is
// called between attempts; true ends them with Preempted.
absl::StatusOr<std::string> WaitForLocalAddressTowards(
    const std::string& address, Duration timeout, const std::function<bool()>& give_up = nullptr);

enum class PortState { kOpen, kRefused, kUnknown };
// Tries to connect to the numeric "ip:port". kRefused: the host replied that nothing listens.
PortState ProbePort(const std::string& address, Duration timeout);
// Probes many addresses in parallel, within one `timeout`.
std::vector<PortState> ProbePorts(const std::vector<std::string>& addresses, Duration timeout);
// As ProbePort, with a host name. kRefused: each of its addresses refuses. kUnknown: the name does
// not resolve.
PortState ProbeNamedPort(const std::string& address, Duration timeout);

}  // namespace muster::rpc
