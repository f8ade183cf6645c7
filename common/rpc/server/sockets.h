// Opens the listening sockets of gRPC servers, and formats the addresses of their connections.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::rpc {

// Listens on numeric "ip:port"s, without SO_REUSEPORT. The socket of the wildcard address "[::]"
// also accepts IPv4. Sets `*port` to the port of the first address. Returns UnavailableError if an
// address is in use.
absl::StatusOr<std::vector<Fd>> ListenOn(const std::vector<std::string>& addresses, int* port);

// Sets the socket options that gRPC sets on connections that gRPC itself accepts.
void ConfigureConnection(int socket);

// Returns "10.0.0.1:80" or "[::1]:80". Formats an IPv4-mapped IPv6 address as IPv4.
std::string NumericAddress(const sockaddr_storage& address);
// Converts gRPC's form of an address, "ipv4:10.0.0.1:80" or "ipv6:%5B::1%5D:80", to the form that
// NumericAddress returns.
std::string PeerAddress(std::string_view peer);
// Returns the IPv4 address, or the /64 network of an IPv6 address. Connection limits treat
// connections with the same result as one source.
std::string SourceOf(const sockaddr_storage& address);

}  // namespace muster::rpc
