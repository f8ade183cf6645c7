// Sockets of our own, and the addresses at their ends.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "muster/status.h"

namespace muster::rpc {

// Listens on numeric "ip:port"s, without SO_REUSEPORT; the wildcard address of IPv6 takes IPv4 too.
// UnavailableError where one is taken. `port`: that of the first one.
absl::StatusOr<std::vector<Fd>> ListenOn(const std::vector<std::string>& addresses, int* port);

// As gRPC configures those that it accepts.
void ConfigureConnection(int socket);

// "10.0.0.1:80", "[::1]:80"; an IPv4 address that came over IPv6 is that of IPv4.
std::string NumericAddress(const sockaddr_storage& address);
// Of gRPC's "ipv4:10.0.0.1:80" or "ipv6:%5B::1%5D:80".
std::string PeerAddress(std::string_view peer);
// Whom an address belongs to: the address itself, of IPv6 the /64.
std::string SourceOf(const sockaddr_storage& address);

}  // namespace muster::rpc
