// The tasks of a cluster and their addresses, in normalized form. The same in every task of one
// cluster. A value type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/cluster/task.h"
#include "muster/json.h"

namespace muster {

struct ClusterSpec {
  std::optional<Address> chief;
  std::vector<Address> worker, ps, evaluator;  // By index.

  bool empty() const { return !chief && worker.empty() && ps.empty() && evaluator.empty(); }
  int Count(TaskType type) const;
  bool Has(TaskId task) const;
  // REQUIRES: Has(task).
  const Address& AddressOf(TaskId task) const;

  // The tasks of synchronous training in rank order: the chief, then the workers by index.
  // Members()[rank] is the member with that rank. Evaluators and ps are never members.
  std::vector<TaskId> Members() const;
  // The task that coordinates: the chief, or worker 0 if there is no chief. nullopt with neither.
  std::optional<TaskId> Coordinator() const;
  // All tasks: members, then ps, then evaluators.
  std::vector<TaskId> Tasks() const;

  // A fingerprint of chief, workers and ps, independent of the spelling of the spec. Compared at
  // join. It leaves out evaluators, because launchers list them in some tasks only.
  std::string Digest() const;
  // {"chief": ["host:1"], "worker": [...]}, without empty jobs. SpecFromJson reads it back.
  Json ToJson() const;
};
// Reads the output of ToJson, which a member sends at join, and every other accepted spelling.
absl::StatusOr<ClusterSpec> SpecFromJson(const Json& json);

// The first difference between the chiefs, workers and ps of two specs, as covered by Digest.
struct SpecDifference {
  std::string field;          // "cluster.worker[1]", or "cluster.ps" if the counts differ.
  std::string first, second;  // "a:2222", "2 tasks" or "none", for messages.
  friend bool operator==(const SpecDifference&, const SpecDifference&) = default;
};
std::optional<SpecDifference> FirstDifference(const ClusterSpec& first, const ClusterSpec& second);

}  // namespace muster
