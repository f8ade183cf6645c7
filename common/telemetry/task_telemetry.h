// The telemetry of one task: a TaskMeter, a thread that samples the system once a second, and
// /metrics if status.metrics_port is set.
#pragma once

#include <functional>
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
  // `restarts` is the number of times the launcher has restarted this task. Returns
  // ConfigurationError if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<TaskTelemetry>> Start(const ClusterConfig& cluster,
                                                              const Job& job, int restarts);
  // Blocks for at most a second, even if a GPU driver hangs.
  virtual ~TaskTelemetry() = default;

  // Owned by this object.
  virtual TaskMeter* meter() = 0;
  // Also samples these GPUs through NVML. Has no effect if NVML is missing.
  void WatchGpus(const std::vector<std::string>& uuids);
  // Returns a reader, or null. Called on the sampling thread, which a driver may block forever.
  using OpenGpus = std::function<std::unique_ptr<GpuReader>()>;
  virtual void WatchGpus(OpenGpus open) = 0;
};

}  // namespace muster
