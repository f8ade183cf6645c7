// Plans the tasks of a cluster on this host: their order, their loopback addresses, and TF_CONFIG.
// A task is one process of a job: the chief, a worker, a ps task or the evaluator. The caller
// supplies the ports. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include "common/cluster/task.h"
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
  TaskType type = TaskType::kChief;
  int index = 0;
  std::string address;  // "127.0.0.1:20017"
  // True for the lead: the chief, or worker 0 in a cluster without a chief. The exit code of the
  // lead is the exit code of the job.
  bool lead = false;

  std::string Id() const;      // "worker:1".
  std::string Name() const;    // "worker 1", for messages and for prefixes of lines.
  std::string Binary() const;  // "muster-worker".
};

// Returns a ConfigurationError for an impossible size, such as a negative count, or a cluster
// without a task that trains.
absl::Status Check(const ClusterSize& size);
// Returns the tasks in the order in which they start, with the lead first. Task i has ports[i].
// REQUIRES: Check(size) is OK, and ports.size() == size.processes().
std::vector<PlannedTask> PlanCluster(const ClusterSize& size, const std::vector<int>& ports);
// Returns the value of TF_CONFIG for `task`.
std::string TfConfigFor(const std::vector<PlannedTask>& cluster, const PlannedTask& task);

}  // namespace muster::launcher
