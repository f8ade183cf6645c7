// Addresses of data connections: "10.0.0.3:41234", "[fe80::1]:41234". Pure functions of the host's
// interfaces. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::transport {

struct Endpoint {
  std::string host;  // Numeric or a name, without brackets.
  int port = 0;
};

// Parses "host:port" or "[v6]:port". Returns an error of one sentence otherwise.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
std::string JoinEndpoint(std::string_view host, int port);

// Returns the first usable address of a network interface ("eth0"), IPv4 before IPv6. For an
// unknown name, returns a configuration error that lists the existing interfaces.
absl::StatusOr<std::string> InterfaceAddress(const std::string& name);

}  // namespace muster::transport
