// Listening sockets that Muster opens itself, and addresses of their connections.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::rpc {

// Listens on numeric "ip:port"s, without SO_REUSEPORT. The wildcard address of IPv6 also accepts
// IPv4. Returns UnavailableError if one is in use. `port` receives the port of the first one.
absl::StatusOr<std::vector<Fd>> ListenOn(const std::vector<std::string>& addresses, int* port);

// Sets the options that gRPC sets on sockets that it accepts.
void ConfigureConnection(int socket);

// Returns "10.0.0.1:80" or "[::1]:80". An IPv4 address over IPv6 is written as IPv4.
std::string NumericAddress(const sockaddr_storage& address);
// Converts gRPC's "ipv4:10.0.0.1:80" or "ipv6:%5B::1%5D:80".
std::string PeerAddress(std::string_view peer);
// Returns the source of an address, for quotas: the address itself, for IPv6 its /64.
std::string SourceOf(const sockaddr_storage& address);

}  // namespace muster::rpc
