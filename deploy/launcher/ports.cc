#include "deploy/launcher/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

namespace muster {
namespace {

// Below lie the ports of well-known services.
constexpr int kLowest = 10000;
constexpr int kHighest = 65535;

bool IsFree(int port) {
  // Without SO_REUSEADDR: a listener on any address, and one that has just closed, both count as
  // taken.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

// The file descriptor of the mark, or -1 where another launch holds it.
int Mark(int port) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("muster-port-{}", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading NUL: abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
  close(fd);
  return -1;
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

absl::StatusOr<PortReservation> PortReservation::Reserve(int count, PortRange ephemeral,
                                                         unsigned first) {
  std::vector<int> candidates;
  for (int port = kLowest; port <= kHighest; ++port) {
    if (port < ephemeral.low || port > ephemeral.high) candidates.push_back(port);
  }
  PortReservation reservation;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<int>(reservation.ports_.size()) == count) break;
    const int port = candidates[(first + i) % candidates.size()];
    const int mark = Mark(port);
    if (mark < 0) continue;
    if (!IsFree(port)) {
      close(mark);
      continue;
    }
    reservation.ports_.push_back(port);
    reservation.marks_.push_back(mark);
  }
  if (static_cast<int>(reservation.ports_.size()) < count) {
    return ConfigurationError(fmt::format(
        "{} free ports are needed on 127.0.0.1, but only {} of the {} between {} and {} outside "
        "the ephemeral range {}-{} are free; narrow the range with `sysctl "
        "net.ipv4.ip_local_port_range=\"32768 60999\"`",
        count, reservation.ports_.size(), candidates.size(), kLowest, kHighest, ephemeral.low,
        ephemeral.high));
  }
  return reservation;
}

PortReservation::~PortReservation() {
  for (int fd : marks_) close(fd);
}

}  // namespace muster
