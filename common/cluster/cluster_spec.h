// The tasks of a cluster and their addresses, in normalized form. All tasks of a cluster have an
// equal ClusterSpec, except that some may lack evaluators.
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

  // Returns the tasks of synchronous training in rank order: the chief, then the workers by index.
  // Ps and evaluators are not included.
  std::vector<TaskId> Members() const;
  // Returns the task with the chief's role: the chief, or worker 0 if there is no chief. Returns
  // nullopt if there is neither.
  std::optional<TaskId> Coordinator() const;
  // Returns all tasks: members, then ps, then evaluators.
  std::vector<TaskId> Tasks() const;

  // Returns a fingerprint of the addresses of chief, workers and ps, which does not depend on the
  // spelling of the spec. The coordinator compares it when a task joins. Evaluators are not
  // included, because launchers list them in some tasks only.
  std::string Digest() const;
  // Returns {"chief": ["host:1"], "worker": [...]}, without task types that have no task.
  Json ToJson() const;
};
// Parses the output of ToJson, which a member sends when it joins, or TF_CONFIG's "cluster".
absl::StatusOr<ClusterSpec> SpecFromJson(const Json& json);

// A difference between two specs, for messages.
struct SpecDifference {
  std::string field;          // "cluster.worker[1]", or "cluster.ps" if the counts differ.
  std::string first, second;  // The values in the two specs: "a:2222", "2 tasks" or "none".
  friend bool operator==(const SpecDifference&, const SpecDifference&) = default;
};
// Returns the first difference in chief, workers and ps, or nullopt if there is none.
std::optional<SpecDifference> FirstDifference(const ClusterSpec& first, const ClusterSpec& second);

}  // namespace muster
