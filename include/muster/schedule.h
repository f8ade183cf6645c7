// Learning rates over the steps of a run, and how a program brings a schedule of its own:
//
//   class Sawtooth : public muster::Schedule { ... };
//   builder.schedule("sawtooth", [](JsonObject& keys, const ScheduleContext& context) {
//     double top = 0.1;
//     keys.Read("top", &top);
//     return std::make_unique<Sawtooth>(top, context.steps_per_epoch);
//   });
//
// The job names it as it names a built-in one: "learning_rate": {"name": "sawtooth", "top": 0.2}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "muster/json.h"

namespace muster {

// A function of the number of steps done and of nothing else, so that a restart continues exactly
// and every member computes the same rate. Immutable, thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // The rate for the update after `steps` steps are done: At(0) is the first step's. Not below 0,
  // and finite.
  virtual double At(int64_t steps) const = 0;
};

// What relative lengths in a schedule refer to.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;  // 0: not known; lengths in epochs are refused
  int64_t total_steps =
      0;  // 0: not known; a schedule that needs it and has no length of its own is refused
  // At the first start of the run. With parameter servers the workers.
  int64_t num_replicas = 1;
};

// Reads its keys from the job's (or the program's) object: those that it does not read are refused,
// and keys.Fail() refuses a value. Called whenever training begins or goes on, for each optimizer
// and table that names the schedule.
using ScheduleFactory =
    std::function<std::unique_ptr<Schedule>(JsonObject& keys, const ScheduleContext& context)>;

}  // namespace muster
