// What a member is doing. Heartbeats carry the phase with its age, and each phase has a deadline of
// its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class Phase : uint8_t {
  kStarting = 0,  // process start to join: imports, datasets, models
  kForming,       // building communicators
  kData,          // waiting for the input pipeline
  kForward,       // program code: forward and backward pass
  kReduce,        // waiting for peers in a collective
  kUpdate,        // optimizer
  kEvaluate,      // validation and test passes
  kSave,          // checkpoint
  kEnding,        // done, waiting for the verdict
};
inline constexpr int kNumPhases = 9;

inline constexpr std::string_view kPhaseNames[kNumPhases] = {
    "starting", "forming", "data", "forward", "reduce", "update", "evaluate", "save", "ending"};
inline std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }

}  // namespace muster
