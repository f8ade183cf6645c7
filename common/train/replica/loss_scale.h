// The report on the dynamic loss scale of a float16 run, and the limits of the scale. Needs no
// LibTorch. precision.h has the scale itself.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr double kLeastLossScale = 1;
// A run fails after this many skipped steps in a row with the scale at its minimum. From the
// initial scale of 65536, the scale reaches that minimum after 16 skipped steps.
inline constexpr int64_t kMostSkippedSteps = 20;

struct LossScaleReport {
  double scale = 0;           // The scale of the next step. 0 if unknown.
  int64_t skipped_steps = 0;  // Total in the whole run. Skipped steps update nothing.
  bool skipped = false;       // The step of this report was skipped.
};

}  // namespace muster
