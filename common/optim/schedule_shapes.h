// The built-in learning-rate schedules, without their warm-up. Internal to schedule.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster::schedules {

// The rate as a function of steps. Boundaries use `since_start`, which counts from the start of
// training. Decays use `since_warmup`, which counts from the end of the warm-up.
struct Shape {
  double initial = 0;  // Target of the warm-up.
  std::function<double(int64_t since_start, int64_t since_warmup)> rate;
  // The shape has a rise of its own, so a warm-up is refused.
  bool rises = false;
};

struct ShapeContext {
  const ScheduleContext& run;
  int64_t warmup = 0;          // In steps.
  bool scales_itself = false;  // Set by a shape that applies `scale` itself.
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
// Returns the length "<what>_steps", or "<what>_epochs" (may be fractional), in steps. Returns 0 if
// neither is given. A given length of 0 is an error unless `may_be_zero`.
int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context,
                   bool may_be_zero = false);
int64_t ReadRequiredLength(JsonObject& spec, const std::string& what,
                           const ScheduleContext& context);
// Returns the length, or all steps after the warm-up if the job does not give it.
int64_t ReadLengthOrRest(JsonObject& spec, const std::string& what, const ShapeContext& context);
// Refuses `key` if the number of steps in an epoch is unknown.
void RequireEpochs(JsonObject& spec, const std::string& key, const ScheduleContext& context);
int64_t StepsOf(double epochs, const ScheduleContext& context);

// ---- Shapes that rise and fall (schedule_cycles.cc)
Shape CosineRestarts(JsonObject& spec, ShapeContext& context);
Shape OneCycle(JsonObject& spec, ShapeContext& context);
Shape RampHoldDecay(JsonObject& spec, ShapeContext& context);

}  // namespace muster::schedules
