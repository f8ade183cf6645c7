// Writes the system metrics of all tasks as TensorBoard scalars, one curve for each task and
// device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/wait.h"
#include "common/train/membership.h"
#include "proto/telemetry.pb.h"

namespace muster::chief {

// Returns the scalars of one moment: "cpu_cores/worker_1", "gpu_utilization/worker_1/gpu_0".
// `stats` is keyed by task. Leaves out what is unknown. Pure.
ScalarReport SystemScalars(int64_t step, const std::map<std::string, proto::TaskStats>& stats);

struct SystemSummaryOptions {
  std::function<std::map<std::string, proto::TaskStats>()> stats;  // Keyed by task.
  std::function<int64_t()> step;  // The last completed step. 0: none, so nothing is written.
  std::function<void(const ScalarReport&)> write;
  Duration interval = std::chrono::seconds(5);
};

// A thread that writes them every few seconds, and a last time when it ends.
class SystemSummaries {
 public:
  explicit SystemSummaries(SystemSummaryOptions options);
  ~SystemSummaries();

 private:
  void Write();

  const SystemSummaryOptions options_;
  int64_t last_step_ = 0;  // Of the last write. Used by thread_.
  Notification end_;
  std::thread thread_;
};

}  // namespace muster::chief
