#include "common/optim/schedule_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

namespace muster::schedules {

// ---- Reading keys

namespace {

// Reports an error for `key` if the number of steps in an epoch is unknown.
void RequireEpochs(JsonObject& spec, const std::string& key, const ScheduleContext& context) {
  if (context.steps_per_epoch > 0 || !spec.Has(key)) return;
  spec.Fail(
      key,
      "counts epochs, and the training data does not tell how many steps one has: give steps, "
      "or set steps_per_epoch");
}

}  // namespace

int64_t StepsOf(double epochs, const ScheduleContext& context) {
  return std::llround(epochs * static_cast<double>(context.steps_per_epoch));
}

void ReadRate(JsonObject& spec, const std::string& key, double* out) {
  spec.Read(key, out);
  if (*out < 0) spec.Fail(key, fmt::format("must not be below 0, is {}", *out));
}

double ReadInitial(JsonObject& spec, const std::string& key) {
  double rate = 0;
  if (!spec.Has(key)) {
    spec.Fail(key, key == "initial" ? "is missing: the rate to start from"
                                    : "is missing: the highest rate");
  }
  ReadRate(spec, key, &rate);
  return rate;
}

int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context,
                   bool may_be_zero) {
  int64_t steps = 0;
  double epochs = 0;
  const std::string in_steps = what + "_steps", in_epochs = what + "_epochs";
  spec.Read(in_steps, &steps).Read(in_epochs, &epochs);
  if (spec.Has(in_steps) && spec.Has(in_epochs)) {
    spec.Fail(in_epochs, fmt::format("cannot be combined with {}", in_steps));
  }
  RequireEpochs(spec, in_epochs, context);
  for (const auto& [key, value] :
       {std::pair{in_steps, static_cast<double>(steps)}, std::pair{in_epochs, epochs}}) {
    const bool zero_is_right = may_be_zero || !spec.Has(key);
    if (value > 0 || (value == 0 && zero_is_right)) continue;
    spec.Fail(
        key, fmt::format("must {}, is {}", zero_is_right ? "not be below 0" : "be above 0", value));
  }
  return epochs > 0 ? std::max<int64_t>(1, StepsOf(epochs, context)) : steps;
}

int64_t ReadRequiredLength(JsonObject& spec, const std::string& what,
                           const ScheduleContext& context) {
  const int64_t length = ReadLength(spec, what, context);
  if (length > 0) return length;
  spec.Fail(what + "_steps", fmt::format("is missing: give it or {}_epochs", what));
  return 1;
}

int64_t ReadLengthOrRest(JsonObject& spec, const std::string& what, const ShapeContext& context) {
  const int64_t length = ReadLength(spec, what, context.run);
  if (length > 0) return length;
  if (context.run.total_steps == 0) {
    spec.Fail(
        what + "_steps",
        "is missing: the job has no known length without max_steps, or epochs of training data "
        "whose size is known");
  }
  return std::max<int64_t>(1, context.run.total_steps - context.warmup);
}

// ---- Shapes

namespace {

Shape Constant(JsonObject& spec, ShapeContext&) {
  Shape shape;
  shape.initial = ReadInitial(spec);
  shape.rate = [initial = shape.initial](int64_t, int64_t) { return initial; };
  return shape;
}

Shape StepDecay(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double gamma = 0.1;
  shape.initial = ReadInitial(spec);
  ReadRate(spec, "gamma", &gamma);
  const int64_t every = ReadRequiredLength(spec, "every", context.run);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    return initial * std::pow(gamma, static_cast<double>(step / every));
  };
  return shape;
}

Shape Exponential(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double decay_rate = 0, floor = 0;
  bool staircase = false;
  shape.initial = ReadInitial(spec);
  if (!spec.Has("decay_rate")) spec.Fail("decay_rate", "is missing: the factor of a decay length");
  ReadRate(spec, "decay_rate", &decay_rate);
  spec.Read("staircase", &staircase);
  ReadRate(spec, "floor", &floor);
  if (floor > shape.initial) {
    spec.Fail("floor",
              fmt::format("must not be above initial, {}, and is {}", shape.initial, floor));
  }
  const int64_t length = ReadRequiredLength(spec, "decay", context.run);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    const double lengths = static_cast<double>(step) / static_cast<double>(length);
    return std::max(floor,
                    initial * std::pow(decay_rate, staircase ? std::floor(lengths) : lengths));
  };
  return shape;
}

Shape Linear(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double end = 0;
  shape.initial = ReadInitial(spec);
  ReadRate(spec, "end", &end);
  const int64_t length = ReadLengthOrRest(spec, "decay", context);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    const double done = static_cast<double>(std::min(step, length)) / static_cast<double>(length);
    return initial * (1 - done) + end * done;
  };
  return shape;
}

Shape Polynomial(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double end = 1e-4, power = 1;
  bool cycle = false;
  shape.initial = ReadInitial(spec);
  ReadRate(spec, "end", &end);
  spec.Read("power", &power).Read("cycle", &cycle);
  if (!(power > 0)) spec.Fail("power", fmt::format("must be above 0, is {}", power));
  const int64_t length = ReadLengthOrRest(spec, "decay", context);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    // With `cycle`, the decay reaches `end` at each multiple of the length, and then starts from a
    // new rate.
    const int64_t cycles = cycle ? std::max<int64_t>(1, (step + length - 1) / length) : 1;
    const double whole = static_cast<double>(length) * static_cast<double>(cycles);
    const double done = std::min(static_cast<double>(step), whole) / whole;
    return (initial - end) * std::pow(1 - done, power) + end;
  };
  return shape;
}

Shape Cosine(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double alpha = 0;
  shape.initial = ReadInitial(spec);
  ReadRate(spec, "alpha", &alpha);
  const int64_t length = ReadLengthOrRest(spec, "decay", context);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    const double done = static_cast<double>(std::min(step, length)) / static_cast<double>(length);
    return initial * ((1 - alpha) * 0.5 * (1 + std::cos(std::numbers::pi * done)) + alpha);
  };
  return shape;
}

Shape InverseSqrt(JsonObject& spec, ShapeContext& context) {
  constexpr int64_t kTimescale = 10'000;  // The default, as in T5.
  Shape shape;
  shape.initial = ReadInitial(spec);
  int64_t timescale = ReadLength(spec, "timescale", context.run);
  if (timescale <= 0) timescale = context.warmup > 0 ? context.warmup : kTimescale;
  shape.rate = [timescale = static_cast<double>(timescale), initial = shape.initial](int64_t,
                                                                                     int64_t step) {
    return initial * std::sqrt(timescale / (timescale + static_cast<double>(step)));
  };
  return shape;
}

Shape Piecewise(JsonObject& spec, ShapeContext& context) {
  std::vector<int64_t> boundaries;
  std::vector<double> epochs, values;
  spec.Read("boundary_steps", &boundaries).Read("boundary_epochs", &epochs).Read("values", &values);
  if (spec.Has("boundary_steps") == spec.Has("boundary_epochs")) {
    spec.Fail("boundary_steps", "or boundary_epochs must be given, one of the two");
  }
  RequireEpochs(spec, "boundary_epochs", context.run);
  for (const double epoch : epochs) boundaries.push_back(StepsOf(epoch, context.run));
  const bool ascend = std::adjacent_find(boundaries.begin(), boundaries.end(),
                                         std::greater_equal<>()) == boundaries.end();
  if (!ascend || (!boundaries.empty() && boundaries[0] < 0)) {
    spec.Fail(epochs.empty() ? "boundary_steps" : "boundary_epochs",
              fmt::format("must ascend from 0, in steps they are {}", fmt::join(boundaries, ", ")));
  }
  if (values.size() != boundaries.size() + 1) {
    spec.Fail("values", fmt::format("must be one more than the boundaries: {} for {}",
                                    values.size(), boundaries.size()));
  }
  if (std::any_of(values.begin(), values.end(), [](double value) { return value < 0; })) {
    spec.Fail("values", "must not be below 0");
  }
  Shape shape;
  shape.initial = values.empty() ? 0 : values[0];
  shape.rate = [=](int64_t step, int64_t) {
    // A step at a boundary belongs to the interval before it, as in Keras.
    return values[std::lower_bound(boundaries.begin(), boundaries.end(), step) -
                  boundaries.begin()];
  };
  return shape;
}

}  // namespace

const std::vector<NamedShape>& BuiltIn() {
  static const std::vector<NamedShape> shapes = {{"constant", Constant},
                                                 {"step", StepDecay},
                                                 {"piecewise", Piecewise},
                                                 {"exponential", Exponential},
                                                 {"linear", Linear},
                                                 {"polynomial", Polynomial},
                                                 {"cosine", Cosine},
                                                 {"cosine_restarts", CosineRestarts},
                                                 {"inverse_sqrt", InverseSqrt},
                                                 {"one_cycle", OneCycle},
                                                 {"ramp_hold_decay", RampHoldDecay}};
  return shapes;
}

}  // namespace muster::schedules
