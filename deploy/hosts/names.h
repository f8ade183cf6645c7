// The names of the hosts in the cluster spec.
#pragma once

#include <string>
#include <vector>

#include "deploy/hosts/host_list.h"
#include "deploy/launcher/signals.h"
#include "muster/status.h"

namespace muster::hosts {

// Returns for each host the name or address to which ssh connects: ssh's HostName where its
// configuration has one for the host, else the host as it is given, without a user. Returns
// ConfigurationError if some of them are loopback addresses and others are not.
absl::StatusOr<std::vector<std::string>> NamesInCluster(const std::vector<std::string>& ssh,
                                                        const std::vector<Host>& hosts,
                                                        launcher::SignalQueue& signals);
// The last check of NamesInCluster.
absl::Status CheckNames(const std::vector<std::string>& names);

}  // namespace muster::hosts
