// Formats the text of /metrics in Prometheus' exposition format. docs/metrics.md describes each
// name, and tests/golden/metrics.txt lists them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/telemetry.pb.h"

namespace muster {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

struct TaskMetrics {
  std::string task;  // The label of all metrics: "worker:1".
  proto::TaskStats stats;
  bool has_steps = true;                  // The task applies steps or, as a ps, updates.
  bool pulls = false;                     // The task pulls parameters from parameter servers.
  int64_t step = 0;                       // The current step of the task.
  int64_t start_time = 0;                 // Seconds since 1970.
  std::map<std::string, bool> straggler;  // Chief only, by member.
};

// Pure. Leaves out metrics with unknown values.
std::string MetricsText(const TaskMetrics& metrics);

}  // namespace muster
