#include "common/rpc/server/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_replace.h"
#include "common/rpc/channel.h"
#include "common/rpc/host.h"

namespace muster::rpc {
namespace {

void Set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Returns the 4 or 16 bytes of the IP, in network order.
std::string_view BytesOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr),
            4};
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const std::string_view bytes(reinterpret_cast<const char*>(&ip), sizeof ip);
  return IN6_IS_ADDR_V4MAPPED(&ip) ? bytes.substr(12) : bytes;
}

std::string TextOf(std::string_view ip) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(ip.size() == 4 ? AF_INET : AF_INET6, ip.data(), text, sizeof text);
  return text;
}

absl::StatusOr<Fd> ListenOnOne(const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(const HostPort where, SplitHostPort(text));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list) != 0)
    return absl::InvalidArgumentError(fmt::format("{} is no numeric address", text));
  Fd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket) {
    // With this option, old connections in TIME_WAIT do not prevent binding.
    Set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (list->ai_family == AF_INET6) Set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  const bool listens = socket && bind(socket.get(), list->ai_addr, list->ai_addrlen) == 0 &&
                       listen(socket.get(), SOMAXCONN) == 0;
  const int error = errno;
  freeaddrinfo(list);
  if (listens) return socket;
  return absl::UnavailableError(std::strerror(error));
}

}  // namespace

absl::StatusOr<std::vector<Fd>> ListenOn(const std::vector<std::string>& addresses, int* port) {
  std::vector<Fd> sockets;
  for (const std::string& address : addresses) {
    MUSTER_ASSIGN_OR_RETURN(Fd socket, ListenOnOne(address));
    sockets.push_back(std::move(socket));
  }
  if (sockets.empty()) return absl::InvalidArgumentError("no address to listen on");
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(sockets[0].get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return absl::UnavailableError(std::strerror(errno));
  *port = PortOf(bound);
  return sockets;
}

void ConfigureConnection(int socket) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(kKeepaliveTimeout).count()));
}

std::string NumericAddress(const sockaddr_storage& address) {
  return JoinHostPort(TextOf(BytesOf(address)), PortOf(address));
}

std::string PeerAddress(std::string_view peer) {
  const size_t colon = peer.find(':');
  if (colon == std::string_view::npos) return std::string(peer);
  std::string address(peer.substr(colon + 1));
  absl::StrReplaceAll({{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}}, &address);
  // Removes the interface of a link-local address.
  if (const size_t scope = address.find('%'); scope != std::string::npos)
    address.erase(scope, address.find(']') - scope);
  return address;
}

std::string SourceOf(const sockaddr_storage& address) {
  const std::string_view ip = BytesOf(address);
  if (ip.size() == 4) return TextOf(ip);
  std::string prefix(ip.substr(0, 8));
  prefix.resize(16);
  return TextOf(prefix) + "/64";
}

}  // namespace muster::rpc
