// Parses and formats addresses of data connections, for example "10.0.0.3:41234" and
// "[fe80::1]:41234". Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::transport {

struct Endpoint {
  std::string host;  // A name, or an IP address without brackets.
  int port = 0;
};

// Parses "host:port" or "[IPv6 address]:port".
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
std::string JoinEndpoint(std::string_view host, int port);

// Returns the first IPv4 address of the network interface `name` ("eth0"). If the interface has
// only IPv6 addresses, returns its first IPv6 address. If the interface does not exist or has no IP
// address, returns a ConfigurationError that lists the interfaces of this host.
absl::StatusOr<std::string> InterfaceAddress(const std::string& name);

}  // namespace muster::transport
