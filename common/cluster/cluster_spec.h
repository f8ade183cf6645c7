// The tasks of a cluster and their addresses, in normalized form. All tasks of a cluster have the
// same ClusterSpec, except that the ClusterSpec of some tasks may lack the evaluators.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/cluster/task.h"
#include "muster/json.h"

namespace muster {

struct ClusterSpec {
  std::optional<Address> chief;
  std::vector<Address> worker, ps, evaluator;  // Ordered by index.

  bool empty() const { return !chief && worker.empty() && ps.empty() && evaluator.empty(); }
  int Count(TaskType type) const;
  bool Has(TaskId task) const;
  // REQUIRES: Has(task).
  const Address& AddressOf(TaskId task) const;

  // Returns the members: the chief, then the workers by index. This is the rank order of
  // synchronous training. Ps and evaluators are not members.
  std::vector<TaskId> Members() const;
  // Returns the task with the chief's role: the chief, or worker 0 if there is no chief. Returns
  // nullopt if there is no chief and no worker.
  std::optional<TaskId> Coordinator() const;
  // Returns all tasks: members, then ps, then evaluators.
  std::vector<TaskId> Tasks() const;

  // Returns a fingerprint of the addresses of chief, workers and ps. The fingerprint does not
  // depend on the spelling of the spec. When a task joins, the chief compares the task's
  // fingerprint with its own. Evaluators are not included, because launchers list them only for
  // some tasks.
  std::string Digest() const;
  // Returns {"chief": ["host:1"], "worker": [...]}. Omits task types without a task.
  Json ToJson() const;
};
// Parses the key "cluster" of TF_CONFIG, or the ToJson result that a task sends when it joins.
absl::StatusOr<ClusterSpec> SpecFromJson(const Json& json);

// A difference between two specs, for messages.
struct SpecDifference {
  // "cluster.worker[1]" if an address differs, or "cluster.ps" if the number of tasks differs.
  std::string field;
  std::string first, second;  // The values in the two specs: "a:2222", "2 tasks" or "none".
  friend bool operator==(const SpecDifference&, const SpecDifference&) = default;
};
// Returns the first difference in chief, workers and ps, or nullopt if there is none.
std::optional<SpecDifference> FirstDifference(const ClusterSpec& first, const ClusterSpec& second);

}  // namespace muster
