// The metric of an epoch that a callback monitors, and the test for an improvement. Follows Keras'
// MonitorCallback.
#pragma once

#include <optional>
#include <string>

#include "common/train/callbacks/builtin.h"
#include "muster/callback.h"

namespace muster {

class Monitor {
 public:
  // Reads "monitor", "mode" and, if `min_delta` has a value, "min_delta". The default of "monitor"
  // is val_loss, or loss without validation.
  static absl::StatusOr<Monitor> Read(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts,
                                      std::optional<double> min_delta = std::nullopt);

  const std::string& name() const { return name_; }
  // Returns nothing if the epoch lacks the metric. The first such call logs a warning that lists
  // the epoch's metrics.
  std::optional<double> Value(const CallbackContext& context, const char* callback);
  // Returns whether `value` is better than `reference` by more than min_delta. Any value is better
  // than no reference. Compares in float32, as Keras does.
  bool Improves(double value, std::optional<double> reference) const;

 private:
  std::string name_;
  bool larger_ = false;
  double min_delta_ = 0;
  bool told_ = false;
};

// Converts the "best" of a callback's state: a number, or null.
Json NumberOrNull(std::optional<double> value);
std::optional<double> NumberOrNone(const Json& state, const char* key);

}  // namespace muster
