// The telemetry of one task: a TaskMeter (task_meter.h), a thread that samples the resource use of
// the process once a second, and an HTTP server for /metrics. The server exists only if the job
// sets status.metrics_port.
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
  // `restarts` is the number of restarts of this task by the launcher. Returns ConfigurationError
  // if the port of /metrics cannot be bound.
  static absl::StatusOr<std::unique_ptr<TaskTelemetry>> Start(const ClusterConfig& cluster,
                                                              const Job& job, int restarts);
  // Blocks for at most a second, even if a GPU driver hangs.
  virtual ~TaskTelemetry() = default;

  // Owned by this object.
  virtual TaskMeter* meter() = 0;
  // Makes the thread also sample the GPUs with these UUIDs through NVML. Has no effect if NVML is
  // missing.
  void WatchGpus(const std::vector<std::string>& uuids);
  // Returns a reader for the GPUs to sample, or null. The sampling thread calls this function once.
  // The function may block, because a GPU driver may hang.
  using OpenGpus = std::function<std::unique_ptr<GpuReader>()>;
  virtual void WatchGpus(OpenGpus open) = 0;
};

}  // namespace muster
