#include "common/rpc/host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include "common/base/files/fd.h"
#include "common/base/files/files.h"
#include "common/base/json/utf8.h"
#include "common/base/logging.h"
#include "common/rpc/retry.h"

namespace muster::rpc {
namespace {

std::string ReadLink(const char* path) {
  char text[256];
  const ssize_t n = readlink(path, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "";
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostPort& where, int socktype, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socktype;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  if (error != 0)
    return PeerLost(
        fmt::format("cannot resolve the host name '{}': {}", where.host, gai_strerror(error)));
  return AddressList(list, &freeaddrinfo);
}

}  // namespace

HostIdentity ThisHost() {
  HostIdentity identity;
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  identity.name = ValidUtf8(name);
  identity.pid = getpid();
  struct stat shm {};
  stat("/dev/shm", &shm);
  identity.id =
      fmt::format("{} {} {} shm:{}", FirstLineOf("/proc/sys/kernel/random/boot_id"),
                  ReadLink("/proc/self/ns/ipc"), ReadLink("/proc/self/ns/net"), shm.st_dev);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &cpus)) identity.cpus.push_back(cpu);
  }
  return identity;
}

absl::StatusOr<HostPort> SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort result;
  if (colon != std::string::npos) {
    result.host = address.substr(0, colon);
    if (result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']')
      result.host = result.host.substr(1, result.host.size() - 2);
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, result.port);
    if (error == std::errc() && stop == end && stop != address.data() + colon + 1 &&
        !result.host.empty() && result.port >= 0 && result.port <= 65535)
      return result;
  }
  return ConfigurationError(fmt::format("'{}' is not an address: write host:port", address));
}

std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  MUSTER_ASSIGN_OR_RETURN(const HostPort where, SplitHostPort(address));
  MUSTER_ASSIGN_OR_RETURN(const AddressList list, Resolve(where, SOCK_DGRAM, 0));
  std::string why = "no address";
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    // Connecting a UDP socket sends nothing, but the kernel chooses the route and the source
    // address.
    Fd socket(::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (socket.get() < 0 || connect(socket.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
      why = std::strerror(errno);
      continue;
    }
    char text[NI_MAXHOST];
    if (getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0)
      return std::string(text);
  }
  return PeerLost(fmt::format("no way from this host to {}: {}", address, why));
}

absl::StatusOr<std::string> WaitForLocalAddressTowards(const std::string& address, Duration timeout,
                                                       const std::function<bool()>& give_up) {
  const MonotonicTime start = Clock::now();
  MonotonicTime next_line = start + std::chrono::seconds(10);
  Backoff backoff;
  while (true) {
    absl::StatusOr<std::string> local = LocalAddressTowards(address);
    if (local.ok() || local.status().code() == absl::StatusCode::kInvalidArgument) return local;
    const MonotonicTime now = Clock::now();
    if (give_up && give_up())
      return Preempted(fmt::format("stopped while waiting for {}, as asked", address));
    if (now - start >= timeout)
      return DeadlinePassed(
          fmt::format("{} (tried for {:.0f} s)", Message(local.status()), Seconds(now - start)));
    if (now >= next_line) {
      LogInfo("this process waits for {}: {}", address, Message(local.status()));
      next_line += std::chrono::seconds(10);
    }
    std::this_thread::sleep_for(std::min(backoff.Next(), start + timeout - now));
  }
}

namespace {

// A non-blocking connection attempt.
struct Attempt {
  Fd socket;
  PortState state = PortState::kUnknown;
  bool pending = false;
};

Attempt Begin(const addrinfo& a) {
  Attempt attempt;
  attempt.socket = Fd(::socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (attempt.socket.get() < 0) return attempt;
  if (connect(attempt.socket.get(), a.ai_addr, a.ai_addrlen) == 0) {
    attempt.state = PortState::kOpen;
  } else if (errno == ECONNREFUSED) {
    attempt.state = PortState::kRefused;
  } else {
    attempt.pending = errno == EINPROGRESS;
  }
  return attempt;
}

// Waits until all attempts have a result, or for `timeout`.
void Await(std::vector<Attempt>* attempts, Duration timeout) {
  const MonotonicTime end = Clock::now() + timeout;
  while (true) {
    std::vector<pollfd> polled;
    std::vector<Attempt*> of;
    for (Attempt& attempt : *attempts) {
      if (!attempt.pending) continue;
      polled.push_back({attempt.socket.get(), POLLOUT, 0});
      of.push_back(&attempt);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (polled.empty() || left <= 0 ||
        poll(polled.data(), polled.size(), static_cast<int>(left)) <= 0)
      return;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(polled[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
      of[i]->pending = false;
      if (error == 0) of[i]->state = PortState::kOpen;
      if (error == ECONNREFUSED) of[i]->state = PortState::kRefused;
    }
  }
}

}  // namespace

std::vector<PortState> ProbePorts(const std::vector<std::string>& addresses, Duration timeout) {
  std::vector<Attempt> attempts(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    const absl::StatusOr<HostPort> where = SplitHostPort(addresses[i]);
    if (!where.ok()) continue;
    const absl::StatusOr<AddressList> list = Resolve(*where, SOCK_STREAM, AI_NUMERICHOST);
    if (list.ok()) attempts[i] = Begin(**list);
  }
  Await(&attempts, timeout);
  std::vector<PortState> states;
  for (const Attempt& attempt : attempts) states.push_back(attempt.state);
  return states;
}

PortState ProbeNamedPort(const std::string& address, Duration timeout) {
  const absl::StatusOr<HostPort> where = SplitHostPort(address);
  if (!where.ok()) return PortState::kUnknown;
  const absl::StatusOr<AddressList> list = Resolve(*where, SOCK_STREAM, 0);
  if (!list.ok()) return PortState::kUnknown;
  std::vector<Attempt> attempts;
  for (const addrinfo* a = list->get(); a != nullptr; a = a->ai_next) attempts.push_back(Begin(*a));
  Await(&attempts, timeout);
  for (const Attempt& attempt : attempts)
    if (attempt.state != PortState::kRefused) return attempt.state;
  return PortState::kRefused;
}

}  // namespace muster::rpc
