// Which tasks a cluster has and where: the normalised form of what launchers write, the same in
// every task of one cluster. A value type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/cluster/task.h"
#include "muster/json.h"

namespace muster {

struct ClusterSpec {
  std::optional<Address> chief;
  std::vector<Address> worker, ps, evaluator;  // by index

  bool empty() const { return !chief && worker.empty() && ps.empty() && evaluator.empty(); }
  int Count(TaskType type) const;
  bool Has(TaskId task) const;
  // REQUIRES: Has(task).
  const Address& AddressOf(TaskId task) const;

  // The tasks that train in synchronous training, in rank order: the chief, then the workers by
  // index. Evaluators and ps are never members. Members()[rank] is the member with that rank.
  std::vector<TaskId> Members() const;
  // The task that coordinates: the chief, or worker 0 where none is listed; nullopt with neither.
  std::optional<TaskId> Coordinator() const;
  // All tasks: members, then ps, then evaluators.
  std::vector<TaskId> Tasks() const;

  // A fingerprint of chief, workers and ps (not of the evaluators, which launchers list in some
  // tasks only), independent of how the spec was spelt. Compared at join.
  std::string Digest() const;
  // {"chief": ["host:1"], "worker": [...]}: jobs without tasks left out. SpecFromJson reads it
  // back.
  Json ToJson() const;
};
// Reads what ToJson wrote (a member sends its spec at join), and every other accepted spelling.
absl::StatusOr<ClusterSpec> SpecFromJson(const Json& json);

// The first difference between the chiefs, workers and ps of two specs (what Digest covers).
struct SpecDifference {
  std::string field;          // "cluster.worker[1]", or "cluster.ps" where the counts differ
  std::string first, second;  // "a:2222", "2 tasks", "none": for people
  friend bool operator==(const SpecDifference&, const SpecDifference&) = default;
};
std::optional<SpecDifference> FirstDifference(const ClusterSpec& first, const ClusterSpec& second);

}  // namespace muster
