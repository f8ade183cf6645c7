#include "deploy/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "deploy/ranks/node_list.h"

namespace muster::hosts {

absl::StatusOr<std::vector<Host>> ReadHostList(const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ranks::HostSlots> parsed, ranks::ReadHosts(text));
  std::vector<Host> hosts;
  for (const ranks::HostSlots& host : parsed) {
    const bool known = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const Host& other) { return other.target == host.host; });
    if (known)
      return ConfigurationError(
          fmt::format("--hosts is \"{}\", which names {} twice: give it once, with its slots", text,
                      host.host));
    // ssh would parse it as an option.
    if (host.host.starts_with('-'))
      return ConfigurationError(
          fmt::format("--hosts is \"{}\", and {} is not a host name", text, host.host));
    hosts.push_back({host.host, std::max(host.slots, 1)});
  }
  return hosts;
}

int SlotsOf(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

int WorkersFor(const std::vector<Host>& hosts, const launcher::ClusterSize& size) {
  return SlotsOf(hosts) - (size.chief ? 1 : 0);
}

absl::StatusOr<std::vector<size_t>> PlaceTasks(const launcher::ClusterSize& size,
                                               const std::vector<Host>& hosts) {
  const int members = size.workers + (size.chief ? 1 : 0);
  if (members > SlotsOf(hosts)) {
    return ConfigurationError(fmt::format(
        "{} members need as many slots, and --hosts has {}: give the hosts more, as in {}:{}, or "
        "start fewer workers",
        members, SlotsOf(hosts), hosts.front().target, hosts.front().slots + 1));
  }
  std::vector<size_t> places;
  for (size_t host = 0; static_cast<int>(places.size()) < members; ++host) {
    const int room = std::min(hosts[host].slots, members - static_cast<int>(places.size()));
    places.insert(places.end(), static_cast<size_t>(room), host);
  }
  for (int i = 0; i < size.ps; ++i) places.push_back(static_cast<size_t>(i) % hosts.size());
  if (size.evaluator) places.push_back(hosts.size() - 1);
  return places;
}

}  // namespace muster::hosts
