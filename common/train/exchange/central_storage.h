// The central_storage strategy, for a job with one process and several devices. A replica is one
// device's copy of the model, with its own thread. A variable is the master copy of a parameter.
// The variables and their slots (optimizer state, such as a momentum) exist once, on the CPU. All
// updates are made on the CPU. Each replica computes with a copy of the variables on its own
// device. The results are equal to those of a job in which every replica has an optimizer.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/optim/optimizer.h"
#include "muster/json.h"

namespace muster {

// Returns one optimizer for each replica, in the order of the replicas. An update has three
// steps. First, the optimizer of the first replica updates the variables, and all other
// optimizers wait. Then each optimizer copies the variables to its replica's parameters. Last,
// the first optimizer waits until all other optimizers have copied. Each wait lasts at most
// `timeout`.
//
// The replicas' threads use their optimizers concurrently. All replicas must make the same updates
// and the same calls of WithParameters, in the same order. The caller must synchronise the replicas
// before each call of WithParameters.
//
// The candidates of an optimizer are all parameters that it may train. `candidates` has one list of
// candidates for each replica. `groups` has the group of each candidate, as for MakeOptimizer.
// `trained` is true for each candidate that has a variable from the start. If `trained` is empty,
// all candidates have a variable from the start. If the first replica is on the CPU and `separate`
// is false, the variables are the parameters of that replica, and not copies.
absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<std::vector<at::Tensor>>& candidates, Duration timeout,
    std::vector<int> groups, const std::vector<bool>& trained, bool separate);

}  // namespace muster
