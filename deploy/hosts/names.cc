#include "deploy/hosts/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/cluster/task.h"
#include "deploy/hosts/local_command.h"
#include "deploy/hosts/ssh_command.h"

namespace muster::hosts {

absl::StatusOr<std::vector<std::string>> NamesInCluster(const std::vector<std::string>& ssh,
                                                        const std::vector<Host>& hosts,
                                                        launcher::SignalQueue& signals) {
  constexpr Duration kTimeout = std::chrono::seconds(20);
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    MUSTER_ASSIGN_OR_RETURN(const CommandResult printed,
                            RunCommand(PrintConfiguration(ssh, host.target), signals, kTimeout));
    std::string name = HostNameIn(printed.out);
    // Only OpenSSH is known to support -G.
    if (name.empty()) name = host.target.substr(host.target.rfind('@') + 1);
    names.push_back(std::move(name));
  }
  MUSTER_RETURN_IF_ERROR(CheckNames(names));
  return names;
}

absl::Status CheckNames(const std::vector<std::string>& names) {
  const auto loopback = [](const std::string& name) { return IsLoopback(Address{name, 1}); };
  const auto own = std::find_if(names.begin(), names.end(), loopback);
  if (own == names.end() || std::all_of(names.begin(), names.end(), loopback))
    return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "--hosts has {}, at which the other hosts reach only themselves: give the name by which they "
      "reach this host",
      *own));
}

}  // namespace muster::hosts
