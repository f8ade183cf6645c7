// Values of a program's own across the replicas of a generation. Every replica makes the same calls
// in the same order; what they give is compared first, so that a difference is one sentence on all
// of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "muster/nested.h"
#include "muster/status.h"

namespace muster {

// OK where all replicas give the same text, else the same ProgramError on each: "replica 0 <text>,
// replica 2 <text>: <rule>".
absl::Status AgreeOn(Communicator* communicator, at::Device device, const std::string& text,
                     const std::string& rule);

// A number's sum over all replicas, and the texts of those that gave one, by replica, cut where
// they are long. Where nobody has a text it is one small collective.
struct GatheredTexts {
  int64_t sum = 0;
  std::vector<std::string> texts;
};
absl::StatusOr<GatheredTexts> GatherTexts(Communicator* communicator, at::Device device,
                                          int64_t number, const std::string& text);

// As Loop::reduce and Loop::gather say. They throw StatusError.
Nested ReduceOverReplicas(Communicator* communicator, at::Device device, ReduceOp op,
                          const Nested& value, std::optional<int64_t> axis);
Nested GatherOverReplicas(Communicator* communicator, at::Device device, const Nested& value,
                          int64_t axis);

}  // namespace muster
