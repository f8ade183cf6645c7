// A program's own values, exchanged among the replicas of a generation. Every replica makes the
// same calls in the same order. The calls' descriptions are compared first, so that a difference
// gives the same error on all replicas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "muster/nested.h"
#include "muster/status.h"

namespace muster {

// Returns OK if all replicas pass the same text, else the same ProgramError on each: "replica 0
// <text>, replica 2 <text>: <rule>".
absl::Status AgreeOn(Communicator* communicator, at::Device device, const std::string& text,
                     const std::string& rule);

// The sum of a number over all replicas, and the non-empty texts by replica, truncated if long.
// Costs one small collective if all texts are empty.
struct GatheredTexts {
  int64_t sum = 0;
  std::vector<std::string> texts;
};
absl::StatusOr<GatheredTexts> GatherTexts(Communicator* communicator, at::Device device,
                                          int64_t number, const std::string& text);

// Implement Loop::reduce and Loop::gather. Throw StatusError.
Nested ReduceOverReplicas(Communicator* communicator, at::Device device, ReduceOp op,
                          const Nested& value, std::optional<int64_t> axis);
Nested GatherOverReplicas(Communicator* communicator, at::Device device, const Nested& value,
                          int64_t axis);

}  // namespace muster
