// Limits of the dynamic loss scale of a float16 run, and the report on it. In float16, the loss is
// multiplied by this scale, so that small gradients do not become 0. precision.h has the scale
// itself. This code does not need LibTorch.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr double kMinLossScale = 1;
// A run fails when the scale is at its minimum and this many steps in a row were skipped. A step is
// skipped, and updates nothing, if its gradients overflow. The initial scale of 65536 reaches the
// minimum after 16 skipped steps.
inline constexpr int64_t kMaxSkippedSteps = 20;

struct LossScaleReport {
  double scale = 0;           // The scale of the next step. 0 if unknown.
  int64_t skipped_steps = 0;  // The number of skipped steps in the whole run.
  bool skipped = false;       // True if the step of this report was skipped.
};

}  // namespace muster
