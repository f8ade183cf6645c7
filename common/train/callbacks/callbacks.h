// Makes the list of a run's callbacks: those of the program and those of the job's "callbacks".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/train/callbacks/builtin.h"
#include "common/train/callbacks/callback_host.h"

namespace muster {

// A callback that the program registers in build(). There are two kinds. If `callback` is set, the
// callback is part of every run. Otherwise, the callback is part of each run whose job names the
// callback. `make` then makes the callback from the keys of the job's entry.
struct RegisteredCallback {
  std::string name;
  std::shared_ptr<Callback> callback;
  std::function<std::shared_ptr<Callback>(JsonObject& keys)> make;
};

struct CallbackList {
  // In the order in which their hooks are called.
  std::vector<NamedCallback> callbacks;
  // Set if a callback keeps a moving average of the weights.
  std::optional<AverageOptions> average;
  // True if a callback may make requests in the hooks of steps. The replicas (copies of the model,
  // one on each device) then communicate in every step.
  bool decides_in_steps = false;
};

// Makes the callbacks of a run. `listed` is the job's "callbacks". The program's callbacks come
// first, except those that `listed` names. All others follow in the order of `listed`. Returns a
// ConfigurationError that says where a wrong entry is in the job file.
absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts);

}  // namespace muster
