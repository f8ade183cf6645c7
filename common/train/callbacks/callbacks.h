// A run's callbacks in call order: the program's own and those that the job names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/train/callbacks/builtin.h"
#include "common/train/callbacks/callback_host.h"

namespace muster {

// A callback that build() registered. It is either always present, or made from its keys if the job
// names it.
struct RegisteredCallback {
  std::string name;
  std::shared_ptr<Callback> callback;
  std::function<std::shared_ptr<Callback>(JsonObject& keys)> make;
};

struct CallbackList {
  std::vector<NamedCallback> callbacks;
  std::optional<AverageOptions> average;
  bool decides_in_steps = false;  // At least one callback may decide between the steps of an epoch.
};

// Makes the callbacks of a run. `listed` is the job's "callbacks". A program's callback takes the
// place that the job gives it. Callbacks that the job does not name come first. Returns a
// ConfigurationError that names the place of a wrong entry.
absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts);

}  // namespace muster
