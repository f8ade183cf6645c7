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

// Parses "host:port" or "[v6]:port".
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
std::string JoinEndpoint(std::string_view host, int port);

// Returns the first usable address of the network interface `name` ("eth0"). Prefers IPv4 to IPv6.
// For an unknown interface, returns a ConfigurationError that lists the existing ones.
absl::StatusOr<std::string> InterfaceAddress(const std::string& name);

}  // namespace muster::transport
