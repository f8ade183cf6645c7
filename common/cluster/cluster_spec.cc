#include "common/cluster/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/hash.h"

namespace muster {
namespace {

// The task types whose addresses must be equal in all tasks of a cluster.
constexpr TaskType kCompared[] = {TaskType::kChief, TaskType::kWorker, TaskType::kPs};

std::string Tasks(int count) { return fmt::format("{} task{}", count, count == 1 ? "" : "s"); }

}  // namespace

int ClusterSpec::Count(TaskType type) const {
  switch (type) {
    case TaskType::kChief:
      return chief ? 1 : 0;
    case TaskType::kWorker:
      return static_cast<int>(worker.size());
    case TaskType::kPs:
      return static_cast<int>(ps.size());
    case TaskType::kEvaluator:
      return static_cast<int>(evaluator.size());
  }
  return 0;
}

bool ClusterSpec::Has(TaskId task) const {
  return task.index >= 0 && task.index < Count(task.type);
}

const Address& ClusterSpec::AddressOf(TaskId task) const {
  switch (task.type) {
    case TaskType::kWorker:
      return worker.at(task.index);
    case TaskType::kPs:
      return ps.at(task.index);
    case TaskType::kEvaluator:
      return evaluator.at(task.index);
    default:
      return chief.value();
  }
}

std::vector<TaskId> ClusterSpec::Members() const {
  std::vector<TaskId> members;
  if (chief) members.push_back({TaskType::kChief, 0});
  for (int i = 0; i < Count(TaskType::kWorker); ++i) members.push_back({TaskType::kWorker, i});
  return members;
}

std::optional<TaskId> ClusterSpec::Coordinator() const {
  const std::vector<TaskId> members = Members();
  return members.empty() ? std::nullopt : std::optional<TaskId>(members.front());
}

std::vector<TaskId> ClusterSpec::Tasks() const {
  std::vector<TaskId> tasks = Members();
  for (const TaskType type : {TaskType::kPs, TaskType::kEvaluator}) {
    for (int i = 0; i < Count(type); ++i) tasks.push_back({type, i});
  }
  return tasks;
}

std::string ClusterSpec::Digest() const {
  uint64_t hash = kFnvStart;
  for (const TaskType type : kCompared) {
    for (int i = 0; i < Count(type); ++i) {
      hash =
          Fnv1a(fmt::format("{}:{}={}\n", TaskTypeName(type), i, AddressOf({type, i}).Key()), hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

Json ClusterSpec::ToJson() const {
  Json json = Json::object();
  for (const TaskId task : Tasks()) {
    json[std::string(TaskTypeName(task.type))].push_back(AddressOf(task).ToString());
  }
  return json;
}

std::optional<SpecDifference> FirstDifference(const ClusterSpec& first, const ClusterSpec& second) {
  for (const TaskType type : kCompared) {
    const int a = first.Count(type), b = second.Count(type);
    for (int i = 0; i < std::min(a, b); ++i) {
      const Address& ours = first.AddressOf({type, i});
      const Address& theirs = second.AddressOf({type, i});
      if (ours == theirs) continue;
      return SpecDifference{fmt::format("cluster.{}[{}]", TaskTypeName(type), i), ours.ToString(),
                            theirs.ToString()};
    }
    if (a != b) {
      return SpecDifference{fmt::format("cluster.{}", TaskTypeName(type)), Tasks(a), Tasks(b)};
    }
  }
  return std::nullopt;
}

}  // namespace muster
