#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/optim/schedule_shapes.h"

namespace muster::schedules {
namespace {

// Interpolates along half a cosine. Returns `from` at part 0 and `to` at part 1.
double Along(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace

Shape CosineRestarts(JsonObject& spec, ShapeContext& context) {
  Shape shape;
  double t_mul = 2, m_mul = 1, alpha = 0;
  shape.initial = ReadInitial(spec);
  const int64_t first = ReadRequiredLength(spec, "first_decay", context.run);
  spec.Read("t_mul", &t_mul);
  ReadRate(spec, "m_mul", &m_mul);
  ReadRate(spec, "alpha", &alpha);
  if (!(t_mul >= 1)) spec.Fail("t_mul", fmt::format("must not be below 1, is {}", t_mul));
  shape.rate = [=, initial = shape.initial](int64_t, int64_t step) {
    // Each decay is t_mul times as long as the previous one.
    double begin = 0, length = static_cast<double>(first), height = 1;
    const double at = static_cast<double>(step);
    if (t_mul == 1) {
      const double before = std::floor(at / length);
      begin = before * length;
      height = std::pow(m_mul, before);
    }
    while (at >= begin + length) {
      begin += length;
      length *= t_mul;
      height *= m_mul;
    }
    return initial * ((1 - alpha) * height * Along(1, 0, (at - begin) / length) + alpha);
  };
  return shape;
}

Shape OneCycle(JsonObject& spec, ShapeContext& context) {
  const double max = ReadInitial(spec, "max");
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  std::string strategy = "cos";
  bool three_phase = false;
  spec.Read("pct_start", &pct_start)
      .Read("div_factor", &div_factor)
      .Read("final_div_factor", &final_div_factor)
      .Read("anneal_strategy", &strategy)
      .Read("three_phase", &three_phase);
  if (!(pct_start >= 0 && pct_start <= (three_phase ? 0.5 : 1))) {
    spec.Fail("pct_start",
              fmt::format("must be between 0 and {}, is {}", three_phase ? "0.5" : "1", pct_start));
  }
  for (const auto& [key, value] :
       {std::pair("div_factor", div_factor), std::pair("final_div_factor", final_div_factor)})
    if (!(value > 0)) spec.Fail(key, fmt::format("must be above 0, is {}", value));
  if (strategy != "cos" && strategy != "linear")
    spec.Fail("anneal_strategy", fmt::format("must be cos or linear, is \"{}\"", strategy));
  const double total = static_cast<double>(ReadLengthOrRest(spec, "total", context));
  struct Leg {
    double end_step, from, to;
  };
  const double initial = max / div_factor, last = initial / final_div_factor;
  std::vector<Leg> legs = {{pct_start * total - 1, initial, max}};
  if (three_phase) legs.push_back({2 * pct_start * total - 2, max, initial});
  legs.push_back({total - 1, three_phase ? initial : max, last});
  Shape shape;
  shape.rises = true;
  shape.rate = [legs, linear = strategy == "linear"](int64_t, int64_t step) {
    double begin = 0;
    const double at = static_cast<double>(step);
    for (const Leg& leg : legs) {
      if (at > leg.end_step && &leg != &legs.back()) {
        begin = leg.end_step;
        continue;
      }
      // A leg of length 0 is complete, and so is the schedule after the last step.
      const double part =
          leg.end_step > begin ? std::min(1.0, (at - begin) / (leg.end_step - begin)) : 1;
      return linear ? leg.from + (leg.to - leg.from) * part : Along(leg.from, leg.to, part);
    }
    return legs.back().to;
  };
  shape.initial = shape.rate(0, 0);
  return shape;
}

Shape RampHoldDecay(JsonObject& spec, ShapeContext& context) {
  double start = 0, peak = ReadInitial(spec, "peak"), floor = 0, decay_rate = 0;
  int64_t ramp = 0, hold = 0;
  ReadRate(spec, "start", &start);
  ReadRate(spec, "floor", &floor);
  spec.Read("ramp_epochs", &ramp).Read("hold_epochs", &hold);
  if (!spec.Has("decay_rate")) spec.Fail("decay_rate", "is missing: the factor of an epoch");
  ReadRate(spec, "decay_rate", &decay_rate);
  if (floor > peak)
    spec.Fail("floor", fmt::format("must not be above peak, {}, and is {}", peak, floor));
  for (const auto& [key, epochs] : {std::pair("ramp_epochs", ramp), std::pair("hold_epochs", hold)})
    if (epochs < 0) spec.Fail(key, fmt::format("must not be below 0, is {}", epochs));
  if (context.run.steps_per_epoch < 1) {
    spec.Fail("name",
              "is \"ramp_hold_decay\", which counts epochs, and the training data does not tell "
              "how many steps one has: set steps_per_epoch");
  }
  // Only the peak is scaled. The initial and the final rate do not depend on the number of
  // replicas.
  context.scales_itself = true;
  peak *= context.scale;
  Shape shape;
  shape.initial = ramp > 0 ? start : peak;
  shape.rises = true;
  const int64_t steps = std::max<int64_t>(1, context.run.steps_per_epoch);
  shape.rate = [=](int64_t step, int64_t) {
    const int64_t epoch = step / steps;
    if (epoch < ramp)
      return start + (peak - start) / static_cast<double>(ramp) * static_cast<double>(epoch);
    if (epoch < ramp + hold) return peak;
    return (peak - floor) * std::pow(decay_rate, static_cast<double>(epoch - ramp - hold)) + floor;
  };
  return shape;
}

}  // namespace muster::schedules
