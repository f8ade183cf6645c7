#include "common/transport/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <set>

namespace muster::transport {
namespace {

std::string NumericHost(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  auto refuse = [&](std::string_view why) {
    return ConfigurationError(fmt::format(
        "The data address '{}' {}: write host:port, or [IPv6 address]:port.", text, why));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("has no port");
  std::string_view host = text.substr(0, colon), digits = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return refuse("has an unclosed bracket");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("holds an IPv6 address without brackets");
  }
  if (host.empty()) return refuse("has no host");
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 1 || port > 65535) {
    return refuse("has a port that is not a number from 1 to 65535");
  }
  return Endpoint{std::string(host), port};
}

std::string JoinEndpoint(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

absl::StatusOr<std::string> InterfaceAddress(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return ConfigurationError(fmt::format("Cannot list network interfaces: {}", strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::string v4, v6;
  std::set<std::string> known;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    known.insert(i->ifa_name);
    if (i->ifa_addr == nullptr || name != i->ifa_name) continue;
    if (i->ifa_addr->sa_family == AF_INET && v4.empty()) {
      v4 = NumericHost(i->ifa_addr, sizeof(sockaddr_in));
    } else if (i->ifa_addr->sa_family == AF_INET6 && v6.empty()) {
      v6 = NumericHost(i->ifa_addr, sizeof(sockaddr_in6));
    }
  }
  if (!v4.empty()) return v4;
  if (!v6.empty()) return v6;
  std::string names;
  for (const std::string& i : known) names += (names.empty() ? "" : ", ") + i;
  return ConfigurationError(fmt::format(
      "collective.interface '{}' {}: this host has {}.", name,
      known.count(name) ? "has no IP address" : "is not a network interface here", names));
}

}  // namespace muster::transport
