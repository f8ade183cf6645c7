#include "common/optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/optim/schedule_shapes.h"

namespace muster {
namespace {

using schedules::NamedShape;
using schedules::Shape;
using schedules::ShapeContext;

class WarmedUp : public Schedule {
 public:
  struct WarmUp {
    double from = 0;
    int64_t steps = 0;
  };
  WarmedUp(Shape shape, WarmUp warmup, double scale)
      : shape_(std::move(shape)), warmup_(warmup), scale_(scale) {}
  double At(int64_t steps) const override { return scale_ * Unscaled(steps); }

 private:
  double Unscaled(int64_t steps) const {
    if (steps < warmup_.steps) {
      return warmup_.from + (shape_.initial - warmup_.from) *
                                (static_cast<double>(steps) / static_cast<double>(warmup_.steps));
    }
    return shape_.rate(steps, steps - warmup_.steps);
  }

  const Shape shape_;
  const WarmUp warmup_;
  const double scale_;
};

// Returns a shape for a schedule of the program. The shape checks each rate.
Shape OfProgram(const std::string& name, std::shared_ptr<const Schedule> schedule) {
  Shape shape;
  shape.rate = [name, schedule = std::move(schedule)](int64_t, int64_t steps) {
    const double rate = schedule->At(steps);
    if (std::isfinite(rate) && rate >= 0) return rate;
    throw std::domain_error(fmt::format(
        "the schedule \"{}\" gives the learning rate {} after {} steps: a rate is a number not "
        "below 0",
        name, rate, steps));
  };
  return shape;
}

std::vector<std::string> Names(const NamedSchedules& of_program) {
  std::vector<std::string> names;
  for (const NamedShape& shape : schedules::BuiltIn()) names.push_back(shape.name);
  for (const auto& [name, factory] : of_program) names.push_back(name);
  return names;
}

absl::StatusOr<Shape> ReadShape(const std::string& name, JsonObject& spec, ShapeContext& context,
                                const NamedSchedules& of_program) {
  for (const NamedShape& shape : schedules::BuiltIn())
    if (name == shape.name) return shape.make(spec, context);
  if (const auto own = of_program.find(name); own != of_program.end()) {
    std::shared_ptr<const Schedule> schedule = own->second(spec, context.run);
    if (schedule != nullptr) return OfProgram(name, std::move(schedule));
    // Reports an error in the schedule's keys first.
    MUSTER_RETURN_IF_ERROR(spec.Finish());
    return ProgramError(fmt::format("the schedule \"{}\" of the program is null", name));
  }
  const std::vector<std::string> names = Names(of_program);
  const std::string nearest = name.empty() ? "" : Nearest(name, names);
  spec.Fail("name", nearest.empty()
                        ? fmt::format("must be one of {}, is \"{}\"", fmt::join(names, ", "), name)
                        : fmt::format("is \"{}\", did you mean \"{}\"?", name, nearest));
  return Shape();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context,
                                                       const NamedSchedules& of_program) {
  if (!spec.is_number() && !spec.is_object()) {
    return ConfigurationError(fmt::format(
        "learning_rate must be a number or an object with the name of a schedule, is {}",
        spec.dump()));
  }
  const Json object =
      spec.is_object() ? spec : Json::object({{"name", "constant"}, {"initial", spec}});
  JsonObject reader(object, "learning_rate");
  std::string name;
  bool scales = false;
  WarmedUp::WarmUp warmup;
  reader.Read("name", &name).Read("scale_with_replicas", &scales);
  schedules::ReadRate(reader, "warmup_from", &warmup.from);
  warmup.steps = schedules::ReadLength(reader, "warmup", context, /*may_be_zero=*/true);
  ShapeContext of_shape{.run = context, .warmup = warmup.steps};
  if (scales) of_shape.scale = static_cast<double>(context.num_replicas);
  MUSTER_ASSIGN_OR_RETURN(Shape shape, ReadShape(name, reader, of_shape, of_program));
  if (shape.rises) {
    for (const char* key : {"warmup_steps", "warmup_epochs", "warmup_from"})
      if (reader.Has(key)) reader.Fail(key, fmt::format("does not go with {}, which rises", name));
  }
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  // A warm-up to a schedule of the program rises to the schedule's first rate. It is computed after
  // the keys are checked.
  if (of_program.contains(name) && warmup.steps > 0) shape.initial = shape.rate(0, 0);
  return std::make_unique<WarmedUp>(std::move(shape), warmup,
                                    of_shape.scales_itself ? 1 : of_shape.scale);
}

bool IsBuiltInSchedule(const std::string& name) {
  for (const NamedShape& shape : schedules::BuiltIn())
    if (name == shape.name) return true;
  return false;
}

bool ScalesWithReplicas(const Json& spec) {
  if (!spec.is_object()) return false;
  const auto scales = spec.find("scale_with_replicas");
  return scales != spec.end() && scales->is_boolean() && scales->get<bool>();
}

}  // namespace muster
