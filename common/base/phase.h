// The phase of a task: the kind of work that the task is doing. A task's reports to the chief
// contain the phase and the time since its start. The job file has a timeout for each phase.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class Phase : uint8_t {
  // From the start of the process until it joins the job: opens datasets, builds models.
  kStarting = 0,
  kForming,   // Opens the connections to the other tasks.
  kData,      // Waits for the input pipeline.
  kForward,   // Runs the program's code: forward and backward pass.
  kReduce,    // Waits for peers in a collective operation.
  kUpdate,    // Runs the optimizer.
  kEvaluate,  // Runs a validation or test pass.
  kSave,      // Writes a checkpoint.
  kEnding,    // Training is complete. Waits until the chief says how the job ended.
};
inline constexpr int kNumPhases = 9;

inline constexpr std::string_view kPhaseNames[kNumPhases] = {
    "starting", "forming", "data", "forward", "reduce", "update", "evaluate", "save", "ending"};
inline std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }

}  // namespace muster
