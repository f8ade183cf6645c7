// The built-in learning-rate schedules (schedule.h), without their warm-up. Internal to the
// implementation of schedule.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster::schedules {

// A schedule without its warm-up.
struct Shape {
  double initial = 0;  // The rate at the end of the warm-up.
  // Returns the learning rate of a step. The arguments are the numbers of completed steps since the
  // start of training, and since the end of the warm-up.
  std::function<double(int64_t since_start, int64_t since_warmup)> rate;
  // True if the shape begins with a rise. A shape with a rise cannot have a warm-up.
  bool rises = false;
};

struct ShapeContext {
  const ScheduleContext& run;
  int64_t warmup = 0;  // The length of the warm-up in steps.
  // True if the rates of the shape already include the factor `scale`. Set by the MakeShape
  // function.
  bool scales_itself = false;
  double scale = 1;  // The factor for "scale_with_replicas".
};

using MakeShape = Shape (*)(JsonObject& spec, ShapeContext& context);

struct NamedShape {
  const char* name;
  MakeShape make;
};
// Returns the shapes in the order in which error messages list them.
const std::vector<NamedShape>& BuiltIn();

// ---- Reading keys. The functions report errors with JsonObject::Fail.

// Reads a rate, which must not be below 0.
void ReadRate(JsonObject& spec, const std::string& key, double* out);
// Reads the initial rate. Reports an error if the key is missing.
double ReadInitial(JsonObject& spec, const std::string& key = "initial");
// Reads the key "<what>_steps" or "<what>_epochs", and returns the length in steps. A number of
// epochs may be fractional. Returns 0 if neither key is present. If a key has the value 0 and
// `may_be_zero` is false, reports an error.
int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context,
                   bool may_be_zero = false);
int64_t ReadRequiredLength(JsonObject& spec, const std::string& what,
                           const ScheduleContext& context);
// Like ReadLength, but returns the number of steps after the warm-up if neither key is present.
int64_t ReadLengthOrRest(JsonObject& spec, const std::string& what, const ShapeContext& context);
int64_t StepsOf(double epochs, const ScheduleContext& context);

// ---- Shapes that rise and fall (schedule_cycles.cc)
Shape CosineRestarts(JsonObject& spec, ShapeContext& context);
Shape OneCycle(JsonObject& spec, ShapeContext& context);
Shape RampHoldDecay(JsonObject& spec, ShapeContext& context);

}  // namespace muster::schedules
