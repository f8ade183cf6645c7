// What a run in float16 tells of its dynamic loss scale, and when it is given up. Needs no
// LibTorch; the scale itself is in precision.h.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr double kLeastLossScale = 1;
// So many skipped steps in a row, with the scale at its least, and a run is broken: from 65536,
// where it begins, 16 of them bring it there.
inline constexpr int64_t kMostSkippedSteps = 20;

struct LossScaleReport {
  double scale = 0;           // of the next step; 0: not known
  int64_t skipped_steps = 0;  // in the whole run: they updated nothing
  bool skipped = false;       // the step that this is told with was one of them
};

}  // namespace muster
