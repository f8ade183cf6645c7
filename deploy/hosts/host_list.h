// Parses the hosts of `muster launch --hosts`, and assigns tasks to the hosts. A member is the
// chief or a worker. All functions except ReadHostList are pure.
#pragma once

#include <string>
#include <vector>

#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster::hosts {

struct Host {
  std::string target;  // A destination for ssh: "gpu1", "me@gpu1", or an alias.
  int slots = 1;       // The number of members that the host can run.
};

// Parses the value of --hosts. `text` is a list such as "a:4,b:4", or the name of a file with one
// host per line ("a slots=4"). Returns ConfigurationError if the list or file is malformed or names
// a host twice.
absl::StatusOr<std::vector<Host>> ReadHostList(const std::string& text);

int SlotsOf(const std::vector<Host>& hosts);

// Returns the number of workers for `--workers auto`: one for each slot that the chief does not
// use.
int WorkersFor(const std::vector<Host>& hosts, const launcher::ClusterSize& size);

// Returns the index in `hosts` of each task's host. The tasks are in the order of PlanCluster
// (deploy/launcher/plan.h). First the chief and then the workers fill the slots of the hosts, in
// order. ps tasks are assigned to all hosts in turn, starting with the first host. The evaluator
// runs on the last host. ps tasks and the evaluator use no slots. Returns ConfigurationError if
// there are more members than slots.
absl::StatusOr<std::vector<size_t>> PlaceTasks(const launcher::ClusterSize& size,
                                               const std::vector<Host>& hosts);

}  // namespace muster::hosts
