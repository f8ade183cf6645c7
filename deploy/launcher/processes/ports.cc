#include "deploy/launcher/processes/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace muster::launcher {
namespace {

// Lower ports are used by well-known services.
constexpr int kLowest = 10000;
constexpr int kHighest = 65535;

bool IsFree(int port, bool on_all_addresses) {
  // Does not set SO_REUSEADDR. A port then counts as used if a listener on this address or on all
  // addresses has it, or had it until recently.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(on_all_addresses ? INADDR_ANY : INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

// True if a process of this user listens at that address. False if it cannot be determined.
bool IsOurs(const sockaddr_un& address, socklen_t size) {
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer = {};
  socklen_t length = sizeof peer;
  return fd && connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
         getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

enum class Holder { kThis, kOwn, kOther };
// Marks a port, or returns the holder of the mark: another launch of this user, or another user.
// Other users can mark any number of ports.
Holder Mark(int port, Fd* mark) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Holder::kOwn;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("muster-port-{}", port);
  // A leading NUL makes the name abstract.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(fd.get(), SOMAXCONN) == 0) {
    *mark = std::move(fd);
    return Holder::kThis;
  }
  return IsOurs(address, size) ? Holder::kOwn : Holder::kOther;
}

}  // namespace

absl::StatusOr<PortRange> ParsePortRange(const std::string& text) {
  PortRange range;
  if (std::sscanf(text.c_str(), "%d %d", &range.low, &range.high) != 2 || range.low < 1 ||
      range.high > kHighest || range.low > range.high) {
    return ConfigurationError(
        fmt::format("the ephemeral port range '{}' cannot be read: two numbers are expected, as in "
                    "/proc/sys/net/ipv4/ip_local_port_range",
                    text));
  }
  return range;
}

absl::StatusOr<PortRange> EphemeralRange() {
  constexpr PortRange kDefault = {32768, 60999};
  std::FILE* file = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  if (file == nullptr) return kDefault;
  char text[64] = {};
  const bool read = std::fgets(text, sizeof text, file) != nullptr;
  std::fclose(file);
  return read ? ParsePortRange(text) : kDefault;
}

absl::StatusOr<PortReservation> PortReservation::Reserve(int count, PortRange ephemeral,
                                                         unsigned first, bool on_all_addresses) {
  std::vector<int> candidates;
  for (int port = kLowest; port <= kHighest; ++port) {
    if (port < ephemeral.low || port > ephemeral.high) candidates.push_back(port);
  }
  PortReservation reservation;
  const auto full = [&] { return static_cast<int>(reservation.ports_.size()) == count; };
  std::vector<int> of_others;  // Marked by other users.
  for (size_t i = 0; i < candidates.size() && !full(); ++i) {
    const int port = candidates[(first + i) % candidates.size()];
    Fd mark;
    const Holder holder = Mark(port, &mark);
    if (holder == Holder::kOther) of_others.push_back(port);
    if (holder != Holder::kThis || !IsFree(port, on_all_addresses)) continue;
    reservation.ports_.push_back(port);
    reservation.marks_.push_back(std::move(mark));
  }
  // Uses ports with marks of other users last.
  for (size_t i = 0; i < of_others.size() && !full(); ++i)
    if (IsFree(of_others[i], on_all_addresses)) reservation.ports_.push_back(of_others[i]);
  if (static_cast<int>(reservation.ports_.size()) < count) {
    return ConfigurationError(fmt::format(
        "{} free ports are needed on {}, but only {} of the {} between {} and {} outside "
        "the ephemeral range {}-{} are free; narrow the range with `sysctl "
        "net.ipv4.ip_local_port_range=\"32768 60999\"`",
        count, on_all_addresses ? "all addresses" : "127.0.0.1", reservation.ports_.size(),
        candidates.size(), kLowest, kHighest, ephemeral.low, ephemeral.high));
  }
  return reservation;
}

PortReservation PortReservation::Of(std::vector<int> ports) {
  PortReservation reservation;
  for (const int port : ports) {
    Fd mark;
    if (Mark(port, &mark) == Holder::kThis) reservation.marks_.push_back(std::move(mark));
  }
  reservation.ports_ = std::move(ports);
  return reservation;
}

}  // namespace muster::launcher
