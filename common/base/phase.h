// The phase of a member: what it is doing now. Heartbeats carry the phase and the time since it
// began. The job file has a timeout for each phase.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class Phase : uint8_t {
  kStarting = 0,  // From process start to join: imports, datasets, models.
  kForming,       // Building communicators.
  kData,          // Waiting for the input pipeline.
  kForward,       // Program code: forward and backward pass.
  kReduce,        // Waiting for peers in a collective.
  kUpdate,        // The optimizer.
  kEvaluate,      // Validation and test passes.
  kSave,          // Writing a checkpoint.
  kEnding,        // Training is complete. Waiting for the verdict of the job.
};
inline constexpr int kNumPhases = 9;

inline constexpr std::string_view kPhaseNames[kNumPhases] = {
    "starting", "forming", "data", "forward", "reduce", "update", "evaluate", "save", "ending"};
inline std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }

}  // namespace muster
