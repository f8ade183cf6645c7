#include "common/train/callbacks/monitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "common/base/logging.h"
#include "common/checkpoint/state/fields.h"
#include "common/job/metric_direction.h"

namespace muster {
namespace {

constexpr std::string_view kValidation = "val_";

}  // namespace

absl::StatusOr<Monitor> Monitor::Read(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts, std::optional<double> min_delta) {
  Monitor monitor;
  monitor.name_ = facts.validates ? "val_loss" : "loss";
  std::string mode = "auto";
  keys.Read("monitor", &monitor.name_).Read("mode", &mode);
  if (min_delta) {
    monitor.min_delta_ = *min_delta;
    keys.Read("min_delta", &monitor.min_delta_);
    monitor.min_delta_ = std::abs(monitor.min_delta_);
  }
  if (monitor.name_.starts_with(kValidation) && !facts.validates) {
    return ConfigurationError(
        fmt::format("{}.monitor is \"{}\", but there is no validation data: give data.validation, "
                    "or monitor \"{}\"",
                    place, monitor.name_, monitor.name_.substr(kValidation.size())));
  }
  if (mode != "auto" && mode != "min" && mode != "max") {
    return ConfigurationError(
        fmt::format("{}.mode must be auto, min or max, is \"{}\"", place, mode));
  }
  const std::optional<bool> larger =
      mode == "auto" ? LargerIsBetterByName(monitor.name_) : std::optional<bool>(mode == "max");
  if (!larger) {
    return ConfigurationError(
        fmt::format("{}.mode is auto, and the name \"{}\" does not tell whether larger values are "
                    "better: set {}.mode to min or max",
                    place, monitor.name_, place));
  }
  monitor.larger_ = *larger;
  return monitor;
}

std::optional<double> Monitor::Value(const CallbackContext& context, const char* callback) {
  const auto found = context.metrics().find(name_);
  if (found != context.metrics().end()) return found->second;
  if (!std::exchange(logged_, true)) {
    std::vector<std::string> known;
    for (const auto& [name, value] : context.metrics()) known.push_back(name);
    LogWarning(
        "{} monitors \"{}\", which epoch {} does not have, and has no effect: the epoch has {}",
        callback, name_, context.epoch() + 1, fmt::join(known, ", "));
  }
  return std::nullopt;
}

bool Monitor::Improves(double value, std::optional<double> reference) const {
  if (!reference) return true;
  const auto limit = static_cast<float>(*reference);
  return larger_ ? static_cast<float>(value - min_delta_) > limit
                 : static_cast<float>(value + min_delta_) < limit;
}

Json NumberOrNull(std::optional<double> value) {
  return value ? checkpoint::NumberToJson(*value) : Json();
}

std::optional<double> NumberOrNone(const Json& state, const char* key) {
  double value = 0;
  if (!state.is_object() || !state.contains(key)) return std::nullopt;
  return checkpoint::NumberFromJson(state.at(key), &value) ? std::optional<double>(value)
                                                           : std::nullopt;
}

}  // namespace muster
