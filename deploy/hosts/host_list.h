// Parses the hosts of `muster launch --hosts`, and assigns tasks to them. Pure functions, except
// that ReadHostList may read a file.
#pragma once

#include <string>
#include <vector>

#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster::hosts {

struct Host {
  std::string target;  // A destination for ssh: "gpu1", "me@gpu1", or an alias.
  int slots = 1;       // The number of members that it runs: chief and workers.
};

// Parses the value of --hosts: a list, "a:4,b:4", or the name of a file with one host per line ("a
// slots=4"). Returns ConfigurationError if it is malformed or names a host twice.
absl::StatusOr<std::vector<Host>> ReadHostList(const std::string& text);

int SlotsOf(const std::vector<Host>& hosts);

// Returns the number of workers that fill the slots beside the chief.
int WorkersFor(const std::vector<Host>& hosts, const launcher::ClusterSize& size);

// Returns the host of each task, in the order of PlanCluster. Chief and workers fill the slots of
// the hosts in order, the chief on the first host. ps tasks are assigned to all hosts in turn,
// starting with the first one. The evaluator runs on the last host. Neither uses a slot. Returns
// ConfigurationError if there are more members than slots.
absl::StatusOr<std::vector<size_t>> PlaceTasks(const launcher::ClusterSize& size,
                                               const std::vector<Host>& hosts);

}  // namespace muster::hosts
