// Computes how much of a step's time each task spends on input, computation and waiting, for
// `muster report`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

// Times are in seconds per step.
struct StepSplit {
  std::string task;    // "worker:1", or "rank 0".
  std::string source;  // A text that names the source of the numbers.
  double input = 0;    // The wait for the input pipeline.
  double compute = 0;  // Forward pass, backward pass and update.
  double wait = 0;     // Reductions, including the wait for other tasks.
  int64_t steps = 0;   // The number of measured steps. 0: all steps, or unknown.
};

// Returns a split for rank 0 and for each other measured task. For rank 0, the numbers are the
// medians in result.json. For any other task, the numbers are means over the run, from the
// TensorBoard scalars "steps_per_second/<task>", "input_share/<task>" and "wait_share/<task>" in
// the folder system/. If a task has no such scalars, the numbers are means over the complete steps
// in the task's newest flight record (docs/explain.md).
std::vector<StepSplit> SplitsOf(const Run& run);

}  // namespace muster::report
