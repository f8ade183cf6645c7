#include "common/rpc/server/listen.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/logging.h"
#include "common/rpc/host.h"

namespace muster::rpc {
namespace {

// Binds a socket and listens, without SO_REUSEPORT, then closes the socket. Returns 0 or errno.
int TryBind(const sockaddr* address, socklen_t length) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  // With this option, old connections in TIME_WAIT do not prevent binding.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = bind(fd, address, length) == 0 && listen(fd, 1) == 0;
  const int error = bound ? 0 : errno;
  close(fd);
  return error;
}

std::string Numeric(const sockaddr* address, socklen_t length, int port) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return JoinHostPort(text, port);
}

// Tries to bind every address of the name once. Fills `*plan` and returns 0, or returns errno
// (EADDRNOTAVAIL if no address is local).
int LookOnce(const addrinfo* list, int port, ListenPlan* plan) {
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const int e = TryBind(a->ai_addr, a->ai_addrlen);
    if (e == 0) {
      const std::string text = Numeric(a->ai_addr, a->ai_addrlen, port);
      if (std::find(plan->addresses.begin(), plan->addresses.end(), text) == plan->addresses.end())
        plan->addresses.push_back(text);
      if (port == 0) return 0;  // With more addresses, the kernel would choose several ports.
    } else if (e != EADDRNOTAVAIL && e != EAFNOSUPPORT) {
      error = e;
    }
  }
  if (error == EADDRINUSE) return error;
  return plan->addresses.empty() ? error : 0;
}

int LookAtWildcard(int port, ListenPlan* plan) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  int error = TryBind(reinterpret_cast<sockaddr*>(&v6), sizeof v6);
  if (error == 0) {
    plan->addresses = {JoinHostPort("::", port)};
    return 0;
  }
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return error;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  error = TryBind(reinterpret_cast<sockaddr*>(&v4), sizeof v4);
  if (error == 0) plan->addresses = {JoinHostPort("0.0.0.0", port)};
  return error;
}

int LookEverywhere(const HostPort& where, ListenPlan* plan) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int unresolved =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  int error = EADDRNOTAVAIL;
  if (unresolved == 0) {
    error = LookOnce(list, where.port, plan);
    freeaddrinfo(list);
  }
  if (error != EADDRNOTAVAIL) return error;
  plan->note = fmt::format(
      "this process listens on all interfaces, port {}: '{}' {}", where.port, where.host,
      unresolved == 0 ? "is no local interface"
                      : fmt::format("does not resolve here ({})", gai_strerror(unresolved)));
  return LookAtWildcard(where.port, plan);
}

}  // namespace

absl::StatusOr<ListenPlan> PlanListen(const std::string& address, Duration timeout) {
  MUSTER_ASSIGN_OR_RETURN(const HostPort where, SplitHostPort(address));
  const MonotonicTime start = Clock::now();
  bool said = false;
  while (true) {
    ListenPlan plan;
    const int error = LookEverywhere(where, &plan);
    if (error == 0) return plan;
    const Duration waited = Clock::now() - start;
    if (error != EADDRINUSE)
      return ConfigurationError(
          fmt::format("cannot listen on {}: {}", address, std::strerror(error)));
    if (waited >= timeout)
      return ConfigurationError(
          fmt::format("cannot listen on {}: the port is in use (tried for {:.1f} s); end the "
                      "process that holds it or give this task another port",
                      address, Seconds(waited)));
    if (!said)
      LogWarning("{} is in use: this process tries again for {:.0f} s", address, Seconds(timeout));
    said = true;
    std::this_thread::sleep_for(
        std::min<Duration>(std::chrono::milliseconds(100), timeout - waited));
  }
}

}  // namespace muster::rpc
