// The telemetry of one task: a TaskMeter, a thread that samples the system once a second, and
// /metrics if status.metrics_port is set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/telemetry/task_meter.h"
#include "muster/status.h"

namespace muster {

class TaskTelemetry {
 public:
  // `restarts` counts the starts of this task by its launcher after the first. Returns
  // ConfigurationError if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<TaskTelemetry>> Start(const ClusterConfig& cluster,
                                                              const Job& job, int restarts);
  virtual ~TaskTelemetry() = default;

  // Owned by this object.
  virtual TaskMeter* meter() = 0;
  // Samples these GPUs too, by NVML. Does nothing if NVML is missing.
  virtual void WatchGpus(const std::vector<std::string>& uuids) = 0;
};

}  // namespace muster
