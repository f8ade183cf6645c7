// The central_storage strategy, for a job of one process. The variables and slots of an optimizer
// exist once, on the CPU, where updates are made. Each replica computes with a copy on its own
// device. The results are equal to those of one optimizer for each replica.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/optim/optimizer.h"
#include "muster/json.h"

namespace muster {

// Returns one optimizer for each replica, in the order of the replicas. The first optimizer makes
// the update. The others wait for it, for at most `timeout`. Then each optimizer copies the result
// to its replica.
//
// The threads of the replicas use their optimizers concurrently. All replicas must make the same
// updates and the same calls of WithParameters. The caller must synchronise the replicas before
// each of these calls.
//
// `candidates` has all parameters that may be trained, by replica. `groups` has the group of each
// candidate, as for MakeOptimizer. `trained` says which candidates are variables now. It is empty
// if all are. A first replica on the CPU computes with the variables themselves, without a copy,
// unless `separate` is true.
absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<std::vector<at::Tensor>>& candidates, Duration timeout,
    std::vector<int> groups = {}, const std::vector<bool>& trained = {}, bool separate = false);

}  // namespace muster
