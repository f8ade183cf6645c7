// The names of things in a cluster: task types, tasks ("worker 1"), addresses ("host:2222").
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

enum class TaskType { kChief, kWorker, kPs, kEvaluator };
inline constexpr int kNumTaskTypes = 4;
inline constexpr TaskType kAllTaskTypes[kNumTaskTypes] = {TaskType::kChief, TaskType::kWorker,
                                                          TaskType::kPs, TaskType::kEvaluator};

// "chief", "worker", "ps", "evaluator": also the job names of a cluster spec.
std::string_view TaskTypeName(TaskType type);
// In any case ("Worker"); "master" means chief. nullopt: none of them.
std::optional<TaskType> TaskTypeFromName(std::string_view name);

struct TaskId {
  TaskType type = TaskType::kChief;
  int index = 0;

  std::string ToString() const;  // "worker:1", for machines
  std::string Spoken() const;    // "worker 1", for people
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};
// Either spelling; nullopt for anything else.
std::optional<TaskId> ParseTaskId(std::string_view text);

// A host name, an IPv4 or an IPv6 address, and a port from 1 to 65535.
struct Address {
  std::string host;  // IPv6 without its brackets
  int port = 0;

  std::string ToString() const;  // "host:2222", "[::1]:2222"
  std::string Key() const;       // the same in lower case, for comparisons: names have no case
  friend bool operator==(const Address& a, const Address& b) { return a.Key() == b.Key(); }
};
// The error is a phrase that continues "<field> is <value>": "has no port: write host:port".
absl::StatusOr<Address> ParseAddress(std::string_view text);
// 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(const Address& address);

}  // namespace muster
