// Plans the processes of a local cluster: the tasks in start order, their loopback addresses, and
// TF_CONFIG. All functions are pure. The caller supplies the ports.
#pragma once

#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::launcher {

struct ClusterSize {
  int workers = 0;
  int ps = 0;
  bool chief = true;
  bool evaluator = false;
  int processes() const { return workers + ps + (chief ? 1 : 0) + (evaluator ? 1 : 0); }
};

struct PlannedTask {
  std::string type;  // "chief", "worker", "ps" or "evaluator".
  int index = 0;
  std::string address;  // "127.0.0.1:20017"
  // True for the lead, whose exit code is the job's verdict. The lead is the chief, or worker 0 of
  // a cluster without a chief.
  bool lead = false;

  std::string Id() const;      // "worker:1".
  std::string Name() const;    // "worker 1", for messages and prefixes.
  std::string Binary() const;  // "muster-worker".
};

// Returns a ConfigurationError for an impossible size: no task that trains, a negative count, ...
absl::Status Check(const ClusterSize& size);
// Returns the tasks, with the lead first. REQUIRES: Check(size) is OK, ports.size() ==
// size.processes().
std::vector<PlannedTask> PlanCluster(const ClusterSize& size, const std::vector<int>& ports);
// Returns the value of TF_CONFIG for `task`.
std::string TfConfigFor(const std::vector<PlannedTask>& cluster, const PlannedTask& task);

}  // namespace muster::launcher
