// Which processes make up a local cluster, and what each is told: the tasks in start order, their
// loopback addresses, TF_CONFIG. Pure but for the ports, which the caller brings.
#pragma once

#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct ClusterSize {
  int workers = 0;
  int ps = 0;
  bool chief = true;
  bool evaluator = false;
  int processes() const { return workers + ps + (chief ? 1 : 0) + (evaluator ? 1 : 0); }
};

struct PlannedTask {
  std::string type;  // chief | worker | ps | evaluator
  int index = 0;
  std::string address;  // "127.0.0.1:20017"
  // Its exit code is the job's verdict: the chief, or worker 0 of a cluster without one.
  bool lead = false;

  std::string Id() const;      // "worker:1"
  std::string Name() const;    // "worker 1", as in messages and prefixes
  std::string Binary() const;  // "muster-worker"
};

// The error is a ConfigurationError: nobody to train, a negative count, ...
absl::Status Check(const ClusterSize& size);
// The lead comes first. REQUIRES: Check(size) is OK, ports.size() == size.processes().
std::vector<PlannedTask> PlanCluster(const ClusterSize& size, const std::vector<int>& ports);
// The value of TF_CONFIG for `task`.
std::string TfConfigFor(const std::vector<PlannedTask>& cluster, const PlannedTask& task);

}  // namespace muster
