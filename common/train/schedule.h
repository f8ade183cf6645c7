// Learning-rate schedules: a function of the number of steps done, so that a restart continues
// exactly. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/json.h"

namespace muster {

class Schedule {
 public:
  virtual ~Schedule() = default;
  // The rate for the update after `steps` steps are done: At(0) is the first step's.
  virtual double At(int64_t steps) const = 0;
};

// What relative lengths in a schedule refer to.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;
  int64_t total_steps =
      0;  // 0: not known; a schedule that needs it and has no decay_steps of its own is refused
};

// A number (constant), or {"name": "constant" | "step" | "piecewise" | "exponential" | "cosine",
// ..., "warmup_steps" or "warmup_epochs"}: docs/job_file.md lists the keys; formulas are Keras's
// (ExponentialDecay, PiecewiseConstantDecay, CosineDecay).
absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context);

}  // namespace muster
