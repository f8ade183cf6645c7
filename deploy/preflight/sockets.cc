#include "deploy/preflight/sockets.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/rpc/host.h"

namespace muster::preflight {

int MillisecondsUntil(MonotonicTime until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

bool WaitFor(int fd, short events, MonotonicTime until) {
  pollfd polled{fd, events, 0};
  return poll(&polled, 1, MillisecondsUntil(until)) == 1;
}

bool SendText(int fd, const std::string& text, MonotonicTime until) {
  for (size_t at = 0; at < text.size();) {
    if (!WaitFor(fd, POLLOUT, until)) return false;
    const ssize_t n = send(fd, text.data() + at, text.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) at += static_cast<size_t>(n);
  }
  return true;
}

std::string ReceiveLine(int fd, MonotonicTime until) {
  std::string line;
  while (line.size() < kMaxLine && WaitFor(fd, POLLIN, until)) {
    char bytes[4096];
    const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) break;
    if (n > 0) line.append(bytes, static_cast<size_t>(n));
    if (line.ends_with('\n')) return line;
  }
  return "";
}

absl::StatusOr<AddressList> Resolve(const std::string& address, int socktype, int flags) {
  int error = EAI_NONAME;
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = socktype;
  hints.ai_flags = flags | AI_NUMERICSERV;
  if (const auto where = rpc::SplitHostPort(address); where.ok())
    error = getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(), &hints, &list);
  if (error != 0) return PeerLost(fmt::format("cannot resolve its name: {}", gai_strerror(error)));
  return AddressList(list, &freeaddrinfo);
}

absl::StatusOr<Fd> ConnectTo(const addrinfo& address, const ConnectOptions& options,
                             MonotonicTime until) {
  const MonotonicTime start = Clock::now();
  Fd socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (socket.get() < 0) return PeerLost(std::strerror(errno));
  setsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &options.max_segment,
             sizeof options.max_segment);
  if (!options.own_host.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const AddressList own, Resolve(rpc::JoinHostPort(options.own_host, 0),
                                                           SOCK_STREAM, AI_NUMERICHOST));
    if (bind(socket.get(), own->ai_addr, own->ai_addrlen) != 0)
      return PeerLost(fmt::format("cannot use {}: {}", options.own_host, std::strerror(errno)));
  }
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return PeerLost(std::strerror(errno));
  if (!WaitFor(socket.get(), POLLOUT, until))
    return PeerLost(
        fmt::format("no answer within {:.3g} s (packets are dropped on the way: a firewall?)",
                    Seconds(until - start)));
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == ECONNREFUSED) return PeerLost("connection refused: no process listens there yet");
  if (error != 0) return PeerLost(std::strerror(error));
  return socket;
}

absl::StatusOr<Fd> BindTo(const std::string& host, int socktype, int* port) {
  MUSTER_ASSIGN_OR_RETURN(const AddressList list,
                          Resolve(rpc::JoinHostPort(host, 0), socktype, AI_NUMERICHOST));
  Fd socket(::socket(list->ai_family, socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (socket.get() < 0 || bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      (socktype == SOCK_STREAM && listen(socket.get(), 4) != 0) ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return PeerLost(fmt::format("cannot listen on {}: {}", host, std::strerror(errno)));
  *port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return socket;
}

}  // namespace muster::preflight
