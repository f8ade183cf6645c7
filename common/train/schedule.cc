#include "common/train/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>
#include <vector>

namespace muster {
namespace {

// Rates as a function of steps: `at_start` counts from the start of training, so that boundaries
// are where the job file says; decays count from the end of the warm-up.
struct Shape {
  double initial = 0;
  std::function<double(int64_t since_start, int64_t since_warmup)> rate;
};

class WarmedUp : public Schedule {
 public:
  WarmedUp(Shape shape, double from, int64_t warmup)
      : shape_(std::move(shape)), from_(from), warmup_(warmup) {}
  double At(int64_t steps) const override {
    if (steps < warmup_) {
      return from_ + (shape_.initial - from_) * (static_cast<double>(steps) / warmup_);
    }
    return shape_.rate(steps, steps - warmup_);
  }

 private:
  const Shape shape_;
  const double from_;
  const int64_t warmup_;
};

int64_t StepsOf(double epochs, const ScheduleContext& context) {
  return std::llround(epochs * static_cast<double>(context.steps_per_epoch));
}

void ReadRate(JsonObject& spec, const std::string& key, double* out) {
  spec.Read(key, out);
  if (*out < 0) spec.Fail(key, fmt::format("must not be below 0, is {}", *out));
}

void ReadInitial(JsonObject& spec, Shape* shape) {
  if (!spec.Has("initial")) spec.Fail("initial", "is missing: the rate to start from");
  ReadRate(spec, "initial", &shape->initial);
}

void RequireEpochs(JsonObject& spec, const std::string& key, const ScheduleContext& context) {
  if (context.steps_per_epoch > 0 || !spec.Has(key)) return;
  spec.Fail(
      key,
      "counts epochs, and the training data does not tell how many steps one has: give steps, "
      "or set steps_per_epoch");
}

// The length "<what>_steps", or "<what>_epochs" (which may be fractional), in steps; 0 if neither
// is given.
int64_t ReadLength(JsonObject& spec, const std::string& what, const ScheduleContext& context) {
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
    const bool may_be_zero = what == "warmup" || !spec.Has(key);
    if (value > 0 || (value == 0 && may_be_zero)) continue;
    spec.Fail(key,
              fmt::format("must {}, is {}", may_be_zero ? "not be below 0" : "be above 0", value));
  }
  return epochs > 0 ? std::max<int64_t>(1, StepsOf(epochs, context)) : steps;
}

void RequireLength(JsonObject& spec, const std::string& what, int64_t* length) {
  if (*length > 0) return;
  spec.Fail(what + "_steps", fmt::format("is missing: give it or {}_epochs", what));
  *length = 1;
}

Shape Constant(JsonObject& spec) {
  Shape shape;
  ReadInitial(spec, &shape);
  shape.rate = [initial = shape.initial](int64_t, int64_t) { return initial; };
  return shape;
}

Shape StepDecay(JsonObject& spec, const ScheduleContext& context) {
  Shape shape;
  double gamma = 0.1;
  ReadInitial(spec, &shape);
  ReadRate(spec, "gamma", &gamma);
  int64_t every = ReadLength(spec, "every", context);
  RequireLength(spec, "every", &every);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    return initial * std::pow(gamma, static_cast<double>(step / every));
  };
  return shape;
}

Shape Exponential(JsonObject& spec, const ScheduleContext& context) {
  Shape shape;
  double decay_rate = 0;
  bool staircase = false;
  ReadInitial(spec, &shape);
  if (!spec.Has("decay_rate")) spec.Fail("decay_rate", "is missing: the factor of a decay length");
  ReadRate(spec, "decay_rate", &decay_rate);
  spec.Read("staircase", &staircase);
  int64_t length = ReadLength(spec, "decay", context);
  RequireLength(spec, "decay", &length);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    const double lengths = static_cast<double>(step) / static_cast<double>(length);
    return initial * std::pow(decay_rate, staircase ? std::floor(lengths) : lengths);
  };
  return shape;
}

Shape Cosine(JsonObject& spec, const ScheduleContext& context, int64_t warmup) {
  Shape shape;
  double alpha = 0;
  ReadInitial(spec, &shape);
  ReadRate(spec, "alpha", &alpha);
  int64_t length = ReadLength(spec, "decay", context);
  if (length == 0 && context.total_steps == 0) {
    spec.Fail(
        "decay_steps",
        "is missing: the job has no known length without max_steps, or epochs of training data "
        "whose size is known");
  }
  // All steps that are left after the warm-up.
  if (length == 0) length = std::max<int64_t>(1, context.total_steps - warmup);
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    const double done = static_cast<double>(std::min(step, length)) / static_cast<double>(length);
    return initial * ((1 - alpha) * 0.5 * (1 + std::cos(std::numbers::pi * done)) + alpha);
  };
  return shape;
}

Shape Piecewise(JsonObject& spec, const ScheduleContext& context) {
  std::vector<int64_t> boundaries;
  std::vector<double> epochs, values;
  spec.Read("boundary_steps", &boundaries).Read("boundary_epochs", &epochs).Read("values", &values);
  if (spec.Has("boundary_steps") == spec.Has("boundary_epochs")) {
    spec.Fail("boundary_steps", "or boundary_epochs must be given, one of the two");
  }
  RequireEpochs(spec, "boundary_epochs", context);
  for (const double epoch : epochs) boundaries.push_back(StepsOf(epoch, context));
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
    // A boundary itself still belongs to what lies before it, as in Keras.
    return values[std::lower_bound(boundaries.begin(), boundaries.end(), step) -
                  boundaries.begin()];
  };
  return shape;
}

const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {"constant", "step", "piecewise", "exponential",
                                                 "cosine"};
  return names;
}

Shape ReadShape(const std::string& name, JsonObject& spec, const ScheduleContext& context,
                int64_t warmup) {
  if (name == "constant") return Constant(spec);
  if (name == "step") return StepDecay(spec, context);
  if (name == "piecewise") return Piecewise(spec, context);
  if (name == "exponential") return Exponential(spec, context);
  if (name == "cosine") return Cosine(spec, context, warmup);
  const std::string nearest = name.empty() ? "" : Nearest(name, Names());
  spec.Fail("name",
            nearest.empty()
                ? fmt::format("must be one of {}, is \"{}\"", fmt::join(Names(), ", "), name)
                : fmt::format("is \"{}\", did you mean \"{}\"?", name, nearest));
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context) {
  if (!spec.is_number() && !spec.is_object()) {
    return ConfigurationError(fmt::format(
        "learning_rate must be a number or an object with the name of a schedule, is {}",
        spec.dump()));
  }
  const Json object =
      spec.is_object() ? spec : Json::object({{"name", "constant"}, {"initial", spec}});
  JsonObject reader(object, "learning_rate");
  std::string name;
  double warmup_from = 0;
  reader.Read("name", &name);
  ReadRate(reader, "warmup_from", &warmup_from);
  const int64_t warmup = ReadLength(reader, "warmup", context);
  Shape shape = ReadShape(name, reader, context, warmup);
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  return std::make_unique<WarmedUp>(std::move(shape), warmup_from, warmup);
}

}  // namespace muster
