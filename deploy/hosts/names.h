// Finds the names by which the hosts reach each other. TF_CONFIG contains these names.
#pragma once

#include <string>
#include <vector>

#include "deploy/hosts/host_list.h"
#include "deploy/launcher/processes/signals.h"
#include "muster/status.h"

namespace muster::hosts {

// Returns the name or address of each host: the HostName that `ssh -G` prints, or Host::target
// without the user if `ssh -G` prints no HostName. Returns an error if CheckNames returns an error.
// Returns Preempted if a signal in `signals` requests a stop.
absl::StatusOr<std::vector<std::string>> NamesInCluster(const std::vector<std::string>& ssh,
                                                        const std::vector<Host>& hosts,
                                                        launcher::SignalQueue& signals);
// Returns ConfigurationError if some names are loopback addresses and others are not: a loopback
// address would mean a different host on each host.
absl::Status CheckNames(const std::vector<std::string>& names);

}  // namespace muster::hosts
