// The built-in learning-rate schedules, without their warm-up. Internal to schedule.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster::schedules {

// A schedule without its warm-up. `rate` returns the learning rate at a step. `since_start` counts
// the steps from the start of training, for boundaries. `since_warmup` counts them from the end of
// the warm-up, for decays.
struct Shape {
  double initial = 0;  // The warm-up rises to this rate.
  std::function<double(int64_t since_start, int64_t since_warmup)> rate;
  // True if the shape begins with a rise. A warm-up is then refused.
  bool rises = false;
};

struct ShapeContext {
  const ScheduleContext& run;
  int64_t warmup = 0;          // Length of the warm-up in steps.
  bool scales_itself = false;  // A shape that applies `scale` itself sets this to true.
  double scale = 1;
};

using MakeShape = Shape (*)(JsonObject& spec, ShapeContext& context);

struct NamedShape {
  const char* name;
  MakeShape make;
};
// Returns the shapes in the order in which messages list them.
const std::vector<NamedShape>& BuiltIn();

// ---- Reading keys
void ReadRate(JsonObject& spec, const std::string& key, double* out);
// Returns the required initial rate.
double ReadInitial(JsonObject& spec, const std::string& key = "initial");
// Reads "<what>_steps", or "<what>_epochs", which may be fractional. Returns the length in steps,
// or 0 if neither key is present. A length of 0 in the job is an error unless `may_be_zero` is
// true.
int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context,
                   bool may_be_zero = false);
int64_t ReadRequiredLength(JsonObject& spec, const std::string& what,
                           const ScheduleContext& context);
// Like ReadLength. If neither key is present, returns the number of steps after the warm-up.
int64_t ReadLengthOrRest(JsonObject& spec, const std::string& what, const ShapeContext& context);
// Reports an error for `key` if the number of steps in an epoch is unknown.
void RequireEpochs(JsonObject& spec, const std::string& key, const ScheduleContext& context);
int64_t StepsOf(double epochs, const ScheduleContext& context);

// ---- Shapes that rise and fall (schedule_cycles.cc)
Shape CosineRestarts(JsonObject& spec, ShapeContext& context);
Shape OneCycle(JsonObject& spec, ShapeContext& context);
Shape RampHoldDecay(JsonObject& spec, ShapeContext& context);

}  // namespace muster::schedules
