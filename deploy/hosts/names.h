// Finds the names of the hosts for the cluster spec.
#pragma once

#include <string>
#include <vector>

#include "deploy/hosts/host_list.h"
#include "deploy/launcher/signals.h"
#include "muster/status.h"

namespace muster::hosts {

// Returns the name or address of each host: the HostName that `ssh -G` prints, or the given host
// without its user if the command prints none. Returns ConfigurationError if some are loopback
// addresses and others are not.
absl::StatusOr<std::vector<std::string>> NamesInCluster(const std::vector<std::string>& ssh,
                                                        const std::vector<Host>& hosts,
                                                        launcher::SignalQueue& signals);
// Returns ConfigurationError if some names are loopback addresses and others are not.
absl::Status CheckNames(const std::vector<std::string>& names);

}  // namespace muster::hosts
