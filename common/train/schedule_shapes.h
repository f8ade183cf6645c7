// The built-in learning-rate schedules without their warm-up. Internal to schedule.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster::schedules {

// Rates as a function of steps: `since_start` counts from the start of training, so that boundaries
// are where the job file says; decays count from the end of the warm-up.
struct Shape {
  double initial = 0;  // where the warm-up leads
  std::function<double(int64_t since_start, int64_t since_warmup)> rate;
  // It rises by itself: a warm-up before it is refused.
  bool rises = false;
};

struct ShapeContext {
  const ScheduleContext& run;
  int64_t warmup = 0;          // steps
  bool scales_itself = false;  // set by a shape that takes `scale` into account itself
  double scale = 1;
};

using MakeShape = Shape (*)(JsonObject& spec, ShapeContext& context);

struct NamedShape {
  const char* name;
  MakeShape make;
};
// In the order in which messages list them.
const std::vector<NamedShape>& BuiltIn();

// ---- Reading keys
void ReadRate(JsonObject& spec, const std::string& key, double* out);
// The rate to start from, which must be there.
double ReadInitial(JsonObject& spec, const std::string& key = "initial");
// The length "<what>_steps", or "<what>_epochs" (which may be fractional), in steps; 0 if neither
// is given. It may be 0 where `may_be_zero`.
int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context,
                   bool may_be_zero = false);
int64_t ReadRequiredLength(JsonObject& spec, const std::string& what,
                           const ScheduleContext& context);
// All steps that are left after the warm-up where the job does not say it.
int64_t ReadLengthOrRest(JsonObject& spec, const std::string& what, const ShapeContext& context);
// Refuses `key` where an epoch has no known number of steps.
void RequireEpochs(JsonObject& spec, const std::string& key, const ScheduleContext& context);
int64_t StepsOf(double epochs, const ScheduleContext& context);

// ---- Shapes that go up and down (schedule_cycles.cc)
Shape CosineRestarts(JsonObject& spec, ShapeContext& context);
Shape OneCycle(JsonObject& spec, ShapeContext& context);
Shape RampHoldDecay(JsonObject& spec, ShapeContext& context);

}  // namespace muster::schedules
