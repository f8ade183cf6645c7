// Formats the text of /metrics in Prometheus' exposition format. docs/metrics.md describes each
// metric name, and tests/golden/metrics.txt lists the names.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/telemetry.pb.h"

namespace muster {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

struct TaskMetrics {
  std::string task;  // The label "task" of all metrics: "worker:1".
  proto::TaskStats stats;
  bool has_steps = true;   // True if the task trains steps or, as a ps task, applies updates.
  bool pulls = false;      // True if the task pulls parameters from parameter servers.
  int64_t step = 0;        // The current step of the task. 0 if unknown.
  int64_t start_time = 0;  // The start of the process, in seconds since 1970.
  // Only for the chief. Keyed by member ("worker:1"). True if other members wait for this member.
  std::map<std::string, bool> straggler;
};

// Returns the text of /metrics, without metrics whose values are unknown. Pure function.
std::string MetricsText(const TaskMetrics& metrics);

}  // namespace muster
