// Learning-rate schedules: functions of the number of steps. A program can register its own
// schedule in build():
//
//   class Sawtooth : public muster::Schedule { ... };
//   builder.schedule("sawtooth", [](JsonObject& keys, const ScheduleContext& context) {
//     double top = 0.1;
//     keys.Read("top", &top);
//     return std::make_unique<Sawtooth>(top, context.steps_per_epoch);
//   });
//
// The job file then selects this schedule like a built-in schedule: "learning_rate":
// {"name": "sawtooth", "top": 0.2}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "muster/json.h"

namespace muster {

// A pure function from the number of completed steps to the learning rate. Every process therefore
// computes the same rate, also after a restart. Immutable. Thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // Returns the rate of the step after `steps` completed steps. At(0) is the rate of the first
  // step. The rate must be finite and not below 0.
  virtual double At(int64_t steps) const = 0;
};

// Numbers of the run, for schedules whose lengths are in epochs or in fractions of the run.
struct ScheduleContext {
  int64_t steps_per_epoch = 1;  // 0: unknown, so a length in epochs is an error.
  // The number of steps of the run. 0: unknown, so a schedule without a length of its own is an
  // error if the schedule needs the length of the run.
  int64_t total_steps = 0;
  // The number of replicas (devices) at the first start of the run. With parameter servers, the
  // number of workers.
  int64_t num_replicas = 1;
};

// Creates a schedule from the keys of the learning rate's JSON object. The object is from the job
// file or from the program. A key that the factory does not read is an error. The factory calls
// keys.Fail() for an invalid value. Whenever training starts or continues, Muster calls the factory
// for each optimizer and each embedding table that uses this schedule.
using ScheduleFactory =
    std::function<std::unique_ptr<Schedule>(JsonObject& keys, const ScheduleContext& context)>;

}  // namespace muster
