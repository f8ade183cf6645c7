// What callbacks watch: one of an epoch's metrics, and when it has become better. As Keras'
// MonitorCallback.
#pragma once

#include <optional>
#include <string>

#include "common/train/callbacks/builtin.h"
#include "muster/callback.h"

namespace muster {

class Monitor {
 public:
  // Reads "monitor" (default: val_loss, or loss where nothing is validated), "mode" and, where it
  // is wanted, "min_delta".
  static absl::StatusOr<Monitor> Read(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts,
                                      std::optional<double> min_delta = std::nullopt);

  const std::string& name() const { return name_; }
  // Absent: the epoch has no such metric, which is said once, with those that it has.
  std::optional<double> Value(const CallbackContext& context, const char* callback);
  // By more than min_delta; than nothing everything is better. In float32, as metrics are in Keras.
  bool Improves(double value, std::optional<double> reference) const;

 private:
  std::string name_;
  bool larger_ = false;
  double min_delta_ = 0;
  bool told_ = false;
};

// "best" of a state: a number, or null.
Json NumberOrNull(std::optional<double> value);
std::optional<double> NumberOrNone(const Json& state, const char* key);

}  // namespace muster
