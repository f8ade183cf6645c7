// Who and where this process is, as peers need to know it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

struct HostIdentity {
  std::string name;  // for people
  int64_t pid = 0;
  // Equal for two processes exactly where both can map one shared-memory segment and reach each
  // other by loopback: boot id, IPC and network namespace, and the instance of /dev/shm.
  std::string id;
  std::vector<int> cpus;  // cores that this process may run on (sched_getaffinity)
};
HostIdentity ThisHost();

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
// "host:port", "10.0.0.1:5", "[::1]:5".
absl::StatusOr<HostPort> SplitHostPort(const std::string& address);
// Brackets for IPv6.
std::string JoinHostPort(const std::string& host, int port);

// The local IP from which this host would talk to `address`: that of the control connection's
// interface, hence the one that data connections should use too. PeerLost where the name does not
// resolve (yet) or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);
// The same, with retries for as long as `timeout`: names in a cluster may appear late.
// `give_up` is asked between the tries; true ends them with Preempted.
absl::StatusOr<std::string> WaitForLocalAddressTowards(
    const std::string& address, Duration timeout, const std::function<bool()>& give_up = nullptr);

enum class PortState { kOpen, kRefused, kUnknown };
// Tries to connect to the numeric "ip:port". kRefused: the host answered that nobody listens.
PortState ProbePort(const std::string& address, Duration timeout);
// Of many at a time, within one `timeout`.
std::vector<PortState> ProbePorts(const std::vector<std::string>& addresses, Duration timeout);
// The same with a host name. kRefused: each of its addresses refuses. kUnknown where it does not
// resolve.
PortState ProbeNamedPort(const std::string& address, Duration timeout);

}  // namespace muster::rpc
