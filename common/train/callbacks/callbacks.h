// A run's callbacks: the program's own and those that the job names, in their order.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/train/callbacks/builtin.h"
#include "common/train/callbacks/callback_host.h"

namespace muster {

// What build() registered: one that is there whatever the job says, or one that is made where the
// job names it, from its keys.
struct RegisteredCallback {
  std::string name;
  std::shared_ptr<Callback> callback;
  std::function<std::shared_ptr<Callback>(JsonObject& keys)> make;
};

struct CallbackList {
  std::vector<NamedCallback> callbacks;
  std::optional<AverageOptions> average;
  bool decides_in_steps = false;  // one of them does
};

// `listed`: the job's "callbacks". A program's own come in the job's places, those that the job
// does not name before all others. Errors: a ConfigurationError that names the place.
absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts);

}  // namespace muster
