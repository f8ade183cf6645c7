// The central_storage strategy. The variables of an optimizer and its slots exist once, on the CPU
// of the only process, and are updated there. Each replica computes with a copy on its own device.
// The result of an update is the same as with one optimizer for each replica.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/optim/optimizer.h"
#include "muster/json.h"

namespace muster {

// Returns one optimizer for each replica, in their order. The first one applies the update. The
// others wait for it, at most `timeout`, and all copy the result.
//
// Each replica's thread uses its own optimizer, concurrently with the others. All replicas make the
// same updates and the same changes of the trained parameters (WithParameters), with a barrier
// before each.
//
// `candidates`: all parameters that may be trained, by replica. `groups`: their groups, as for
// MakeOptimizer. `trained`: the candidates that are variables now; empty for all of them. If the
// first replica is on the CPU, it computes with the variables themselves unless `separate` is true.
absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<std::vector<at::Tensor>>& candidates, Duration timeout,
    std::vector<int> groups = {}, const std::vector<bool>& trained = {}, bool separate = false);

}  // namespace muster
