// Makes the list of a run's callbacks: the callbacks of the program and of the job's "callbacks".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/train/callbacks/builtin.h"
#include "common/train/callbacks/callback_host.h"

namespace muster {

// A callback that the program registers in build(). If `callback` is set, every run has this
// callback. If `callback` is null, a run has the callback only if its job lists `name` under
// "callbacks". `make` then makes the callback from the keys of the job's entry.
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
  // True if a callback may make requests in its hooks step_begin and step_end. The replicas (copies
  // of the model, one on each device) then communicate in every step.
  bool decides_in_steps = false;
};

// Makes the callbacks of a run. `listed` is the job's "callbacks". First come the program's
// callbacks that `listed` does not name. Then follow the callbacks in `listed`, in the same order.
// For a wrong entry, returns a ConfigurationError that says where the entry is in the job file.
absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts);

}  // namespace muster
