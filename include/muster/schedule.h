// Learning-rate schedules: functions of the number of steps. A program can register its own
// schedule:
//
//   class Sawtooth : public muster::Schedule { ... };
//   builder.schedule("sawtooth", [](JsonObject& keys, const ScheduleContext& context) {
//     double top = 0.1;
//     keys.Read("top", &top);
//     return std::make_unique<Sawtooth>(top, context.steps_per_epoch);
//   });
//
// The job then uses this schedule like a built-in one: "learning_rate": {"name": "sawtooth", "top":
// 0.2}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "muster/json.h"

namespace muster {

// A pure function from the number of completed steps to the learning rate. A restart therefore
// continues exactly, and every member computes the same rate. Immutable. Thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // Returns the rate of the step after `steps` completed steps. At(0) is the rate of the first
  // step. The rate must be finite and not below 0.
  virtual double At(int64_t steps) const = 0;
};

// Numbers of the run, for schedules with lengths in epochs or in fractions of the run.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;  // 0 means unknown: lengths in epochs are then an error.
  // 0 means unknown. A schedule that needs the total and has no length of its own is then an error.
  int64_t total_steps = 0;
  // The number of replicas at the first start of the run. With parameter servers, the number of
  // workers.
  int64_t num_replicas = 1;
};

// Creates a schedule from the keys of a JSON object of the job or of the program. A key that the
// factory does not read is an error. The factory calls keys.Fail() for an invalid value. Called for
// each optimizer and table with this schedule whenever training starts or continues.
using ScheduleFactory =
    std::function<std::unique_ptr<Schedule>(JsonObject& keys, const ScheduleContext& context)>;

}  // namespace muster
