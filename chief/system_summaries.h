// Writes the system metrics of all tasks (CPU, memory, GPUs, speed) as TensorBoard scalars. Each
// task and each GPU has its own curve.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/wait.h"
#include "common/train/observer.h"
#include "proto/telemetry.pb.h"

namespace muster::chief {

// Returns scalars with tags such as "cpu_cores/worker_1" and "gpu_utilization/worker_1/gpu_0" for
// the point `step`. `stats` is keyed by task, such as "worker:1". Omits unknown values. Pure.
ScalarReport SystemScalars(int64_t step, const std::map<std::string, proto::TaskStats>& stats);

struct SystemSummaryOptions {
  // Returns the last measurements, keyed by task.
  std::function<std::map<std::string, proto::TaskStats>()> stats;
  // Returns the last completed step. Nothing is written while it returns 0.
  std::function<int64_t()> step;
  std::function<void(const ScalarReport&)> write;
  Duration interval = std::chrono::seconds(5);  // Time between two writes.
};

// Runs a thread that writes the scalars once in each interval. The destructor makes the thread
// write the scalars once more. There is at most one write for each step.
class SystemSummaries {
 public:
  explicit SystemSummaries(SystemSummaryOptions options);
  ~SystemSummaries();

 private:
  void Write();

  const SystemSummaryOptions options_;
  int64_t last_step_ = 0;  // The step of the last write. Used only by thread_.
  Notification end_;
  std::thread thread_;
};

}  // namespace muster::chief
