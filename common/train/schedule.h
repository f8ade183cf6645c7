// Learning-rate schedules: a function of the number of steps done, so that a restart continues
// exactly. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "muster/json.h"

namespace muster {

class Schedule {
 public:
  virtual ~Schedule() = default;
  // The rate for the update after `steps` steps are done: At(0) is the first step's.
  virtual double At(int64_t steps) const = 0;
};

// What relative lengths in a schedule refer to.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;  // 0: not known; lengths in epochs are refused
  int64_t total_steps =
      0;  // 0: not known; a schedule that needs it and has no decay_steps of its own is refused
};

// A number (constant), or an object; formulas are Keras's (ExponentialDecay, CosineDecay,
// PiecewiseConstantDecay), and every length may be given in steps or in epochs ("..._epochs"):
//   {"name": "constant", "initial"}
//   {"name": "step", "initial", "gamma": 0.1, "every_steps"}
//   {"name": "piecewise", "boundary_steps": [...], "values": [... one more]}
//   {"name": "exponential", "initial", "decay_rate", "decay_steps", "staircase": false}
//   {"name": "cosine", "initial", "alpha": 0, "decay_steps": all that are left after the warm-up}
// Each takes "warmup_steps" too: linear from "warmup_from" (default 0) to the initial rate. Decay
// begins after it; boundaries count from the start of training.
absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context);

}  // namespace muster
