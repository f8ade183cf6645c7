// The text of /metrics, in Prometheus' exposition format. docs/metrics.md describes each name, and
// tests/golden/metrics.txt lists them.
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
  bool has_steps = true;                  // The task applies steps or, on a ps task, updates.
  bool pulls = false;                     // The task pulls parameters from parameter servers.
  int64_t step = 0;                       // The step that the task works on.
  int64_t start_time = 0;                 // Seconds since 1970.
  std::map<std::string, bool> straggler;  // The chief: whether others wait for this member.
};

// Pure. Leaves out what is unknown.
std::string MetricsText(const TaskMetrics& metrics);

}  // namespace muster
