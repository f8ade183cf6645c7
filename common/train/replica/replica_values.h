// Functions that exchange values of a program among the replicas of a generation. A replica is one
// device's copy of the model, with its own thread. A generation is a period of training with fixed
// members. Every replica must make the same calls in the same order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "muster/nested.h"
#include "muster/status.h"

namespace muster {

// Returns OK if all replicas pass the same text. Otherwise returns the same ProgramError on all
// replicas: "replica 0 <text>, replica 2 <text>: <rule>".
absl::Status AgreeOn(collective::Communicator* communicator, at::Device device,
                     const std::string& text, const std::string& rule);

// The result of GatherTexts: the sum of `number` over all replicas, and the non-empty texts in the
// order of replicas. Long texts are truncated. If all texts are empty, GatherTexts needs only one
// small collective.
struct GatheredTexts {
  int64_t sum = 0;
  std::vector<std::string> texts;
};
absl::StatusOr<GatheredTexts> GatherTexts(collective::Communicator* communicator, at::Device device,
                                          int64_t number, const std::string& text);

// These two functions implement Loop::reduce and Loop::gather. The replicas first compare the
// operations, and the names, types and shapes of the values. If the replicas differ in any of
// these, all replicas get the same error. Both throw StatusError.
Nested ReduceOverReplicas(collective::Communicator* communicator, at::Device device, ReduceOp op,
                          const Nested& value, std::optional<int64_t> axis);
Nested GatherOverReplicas(collective::Communicator* communicator, at::Device device,
                          const Nested& value, int64_t axis);

}  // namespace muster
