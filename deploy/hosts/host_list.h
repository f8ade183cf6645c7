// The hosts of `muster launch --hosts`, and which task runs where. Pure functions, except that
// ReadHostList reads a file.
#pragma once

#include <string>
#include <vector>

#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster::hosts {

struct Host {
  std::string target;  // As ssh takes it: "gpu1", "me@gpu1", an alias of ssh's configuration.
  int slots = 1;       // How many members it runs: chief and workers.
};

// Reads the value of --hosts: a list, "a:4,b:4", or the name of a file with one host a line ("a
// slots=4"). Returns ConfigurationError for anything else.
absl::StatusOr<std::vector<Host>> ReadHostList(const std::string& text);

int SlotsOf(const std::vector<Host>& hosts);

// Returns the number of workers that fill the slots beside the chief.
int WorkersFor(const std::vector<Host>& hosts, const launcher::ClusterSize& size);

// Returns the host of each task, in the order of PlanCluster. Chief and workers fill the slots of
// the hosts in order, the chief on the first host. ps tasks take turns over all hosts from the
// first one, and the evaluator is on the last one; neither takes a slot. Returns
// ConfigurationError if there are more members than slots.
absl::StatusOr<std::vector<size_t>> PlaceTasks(const launcher::ClusterSize& size,
                                               const std::vector<Host>& hosts);

}  // namespace muster::hosts
