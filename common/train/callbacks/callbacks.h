// The callbacks of a run, in the order of their calls: those of the program and those of the job.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/train/callbacks/builtin.h"
#include "common/train/callbacks/callback_host.h"

namespace muster {

// A callback that the program registers in build(). If `callback` is set, it is part of every run.
// Otherwise `make` makes it from the keys of the job's entry, if the job names it.
struct RegisteredCallback {
  std::string name;
  std::shared_ptr<Callback> callback;
  std::function<std::shared_ptr<Callback>(JsonObject& keys)> make;
};

struct CallbackList {
  std::vector<NamedCallback> callbacks;
  std::optional<AverageOptions> average;
  // True if a callback may make requests between the steps of an epoch.
  bool decides_in_steps = false;
};

// Makes the callbacks of a run. `listed` is the job's "callbacks" and sets the order. The program's
// callbacks that the job does not name come first. Returns a ConfigurationError that names the
// place of a wrong entry.
absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts);

}  // namespace muster
