// The strategy central_storage: the variables of an optimizer and its slots exist once, on the CPU
// of the one process, and are updated there; each replica computes with a copy on its own device.
// What an update gives is the same as with an optimizer of its own for each replica.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/train/optimizer.h"
#include "muster/json.h"

namespace muster {

// One optimizer for each replica, in their order: the first one applies the update, the others wait
// for it, `timeout` at most, and all take what it changed. To be used by their replicas' threads
// side by side; all replicas make the same updates, and the same changes of what is trained
// (WithParameters), with a barrier before each. `candidates` are all that may be trained, by
// replica, `groups` theirs as MakeOptimizer has them, and `trained` those that are variables now;
// empty: all are. A first replica on the CPU computes with the variables themselves, but where
// `separate` says no.
absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<std::vector<at::Tensor>>& candidates, Duration timeout,
    std::vector<int> groups = {}, const std::vector<bool>& trained = {}, bool separate = false);

}  // namespace muster
