// Learning-rate schedules over the steps of a run. A program can register its own:
//
//   class Sawtooth : public muster::Schedule { ... };
//   builder.schedule("sawtooth", [](JsonObject& keys, const ScheduleContext& context) {
//     double top = 0.1;
//     keys.Read("top", &top);
//     return std::make_unique<Sawtooth>(top, context.steps_per_epoch);
//   });
//
// The job uses it like a built-in one: "learning_rate": {"name": "sawtooth", "top": 0.2}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "muster/json.h"

namespace muster {

// A pure function of the number of completed steps, so that a restart continues exactly and every
// member computes the same rate. Immutable. Thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // Returns the rate for the update after `steps` completed steps. At(0) is the rate of the first
  // step. Must be finite and not below 0.
  virtual double At(int64_t steps) const = 0;
};

// The values that relative lengths in a schedule refer to.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;  // 0: unknown. Lengths in epochs are then refused.
  // 0: unknown. A schedule that needs it and has no length of its own is then refused.
  int64_t total_steps = 0;
  // The number at the first start of the run. With parameter servers: the number of workers.
  int64_t num_replicas = 1;
};

// Creates a schedule from the keys of the job's (or the program's) object. Keys that it does not
// read are refused, and keys.Fail() refuses a value. Called whenever training starts or continues,
// for each optimizer and table that uses the schedule.
using ScheduleFactory =
    std::function<std::unique_ptr<Schedule>(JsonObject& keys, const ScheduleContext& context)>;

}  // namespace muster
