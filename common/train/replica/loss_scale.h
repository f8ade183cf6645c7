// The report on the dynamic loss scale of a float16 run, and the limit at which the run is given
// up. Needs no LibTorch. precision.h has the scale itself.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr double kLeastLossScale = 1;
// A run fails after this many skipped steps in a row with the scale at its minimum. The initial
// scale, 65536, takes 16 of them to get there.
inline constexpr int64_t kMostSkippedSteps = 20;

struct LossScaleReport {
  double scale = 0;           // The scale of the next step. 0: not known.
  int64_t skipped_steps = 0;  // Total in the whole run. Skipped steps update nothing.
  bool skipped = false;       // The step of this report was skipped.
};

}  // namespace muster
