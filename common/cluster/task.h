// Names in a cluster: task types, tasks ("worker 1") and addresses ("host:2222").
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

// Returns "chief", "worker", "ps" or "evaluator", which are also the job names of a cluster spec.
std::string_view TaskTypeName(TaskType type);
// Ignores case ("Worker"). "master" means chief. Returns nullopt for any other name.
std::optional<TaskType> TaskTypeFromName(std::string_view name);

struct TaskId {
  TaskType type = TaskType::kChief;
  int index = 0;

  std::string ToString() const;  // "worker:1", for machines.
  std::string Spoken() const;    // "worker 1", for people.
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};
// Accepts either spelling. Returns nullopt for any other text.
std::optional<TaskId> ParseTaskId(std::string_view text);

// A host name, an IPv4 or an IPv6 address, and a port from 1 to 65535.
struct Address {
  std::string host;  // IPv6 without brackets.
  int port = 0;

  std::string ToString() const;  // "host:2222" or "[::1]:2222".
  // ToString() in lower case, for comparisons, because host names ignore case.
  std::string Key() const;
  friend bool operator==(const Address& a, const Address& b) { return a.Key() == b.Key(); }
};
// The error is a phrase that continues "<field> is <value>", such as "has no port: write
// host:port".
absl::StatusOr<Address> ParseAddress(std::string_view text);
// True for 127.0.0.0/8, ::1 and localhost.
bool IsLoopback(const Address& address);

}  // namespace muster
