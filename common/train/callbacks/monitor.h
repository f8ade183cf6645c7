// Reads the metric that a callback monitors, such as val_loss, and decides whether a value is an
// improvement. Behaves like Keras' MonitorCallback.
#pragma once

#include <optional>
#include <string>

#include "common/train/callbacks/builtin.h"
#include "muster/callback.h"

namespace muster {

class Monitor {
 public:
  // Reads the keys "monitor" and "mode" of a callback's entry in the job file. The default of
  // "monitor" is val_loss, or loss if the run has no validation. If the argument `min_delta` is
  // set, also reads the key "min_delta", and uses the argument as its default. `place` says where
  // the entry is, for errors.
  static absl::StatusOr<Monitor> Read(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts,
                                      std::optional<double> min_delta = std::nullopt);

  const std::string& name() const { return name_; }
  // Returns the monitored metric of the epoch. Returns nullopt if the epoch does not have this
  // metric. The first call that returns nullopt logs a warning, which lists the epoch's metrics.
  // `callback` is the name of the callback, for the warning.
  std::optional<double> Value(const CallbackContext& context, const char* callback);
  // Returns true if `value` is better than `reference` by more than min_delta. Returns true if
  // `reference` is absent. Compares in float32, as Keras does.
  bool Improves(double value, std::optional<double> reference) const;

 private:
  std::string name_;
  bool larger_ = false;  // True if a larger value is better.
  double min_delta_ = 0;
  bool logged_ = false;
};

// Convert an optional number in a callback's state, such as "best", to and from JSON. An absent
// number is null in JSON.
Json NumberOrNull(std::optional<double> value);
std::optional<double> NumberOrNone(const Json& state, const char* key);

}  // namespace muster
