// Functions that exchange values of a program among the replicas of a generation. Every replica
// must make the same calls in the same order. Descriptions of the calls are compared first, so that
// a difference gives the same error on all replicas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "muster/nested.h"
#include "muster/status.h"

namespace muster {

// Returns OK if all replicas pass the same text. Otherwise returns the same ProgramError on each:
// "replica 0 <text>, replica 2 <text>: <rule>".
absl::Status AgreeOn(collective::Communicator* communicator, at::Device device,
                     const std::string& text, const std::string& rule);

// The result of GatherTexts: the sum of all numbers, and the non-empty texts in the order of
// replicas. Long texts are truncated. If all texts are empty, the call needs only one small
// collective.
struct GatheredTexts {
  int64_t sum = 0;
  std::vector<std::string> texts;
};
absl::StatusOr<GatheredTexts> GatherTexts(collective::Communicator* communicator, at::Device device,
                                          int64_t number, const std::string& text);

// These functions implement Loop::reduce and Loop::gather. They throw StatusError.
Nested ReduceOverReplicas(collective::Communicator* communicator, at::Device device, ReduceOp op,
                          const Nested& value, std::optional<int64_t> axis);
Nested GatherOverReplicas(collective::Communicator* communicator, at::Device device,
                          const Nested& value, int64_t axis);

}  // namespace muster
