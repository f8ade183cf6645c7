// Computes how the time of a step is divided into input, computation and waiting, for each task.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

// Seconds per step.
struct StepSplit {
  std::string task;    // "worker:1", or "rank 0".
  std::string source;  // The source of the numbers, for people.
  double input = 0;    // Waiting for the input pipeline.
  double compute = 0;  // Forward, backward and update.
  double wait = 0;     // In reductions, including waiting for other tasks.
  int64_t steps = 0;   // Measured steps. 0: all, or unknown.
};

// Returns the split of rank 0 (medians of result.json), and of each other task that was measured.
// Sources of the latter: the scalars "steps_per_second/<task>", "input_share/<task>" and
// "wait_share/<task>" of the folder system/ (means of the run). If a task has none, its newest
// flight record (means over its whole steps).
std::vector<StepSplit> SplitsOf(const Run& run);

}  // namespace muster::report
