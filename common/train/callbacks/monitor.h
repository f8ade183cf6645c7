// The metric that a callback monitors: its value in an epoch, and whether a value is an
// improvement. Behaves like Keras' MonitorCallback.
#pragma once

#include <optional>
#include <string>

#include "common/train/callbacks/builtin.h"
#include "muster/callback.h"

namespace muster {

class Monitor {
 public:
  // Reads "monitor" and "mode". The default of "monitor" is val_loss, or loss without validation.
  // If `min_delta` has a value, also reads "min_delta", with that default.
  static absl::StatusOr<Monitor> Read(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts,
                                      std::optional<double> min_delta = std::nullopt);

  const std::string& name() const { return name_; }
  // Returns the metric of the epoch, or nullopt if the epoch does not have it. The first call that
  // finds none logs a warning with the epoch's metrics.
  std::optional<double> Value(const CallbackContext& context, const char* callback);
  // Returns true if `value` is better than `reference` by more than min_delta, or if there is no
  // reference. Compares in float32, as Keras does.
  bool Improves(double value, std::optional<double> reference) const;

 private:
  std::string name_;
  bool larger_ = false;
  double min_delta_ = 0;
  bool logged_ = false;
};

// Convert an optional number of a callback's state, such as "best", to and from JSON. Absent is
// null.
Json NumberOrNull(std::optional<double> value);
std::optional<double> NumberOrNone(const Json& state, const char* key);

}  // namespace muster
