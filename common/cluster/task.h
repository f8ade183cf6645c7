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

// Returns "chief", "worker", "ps" or "evaluator". These are also the keys of "cluster" in
// TF_CONFIG.
std::string_view TaskTypeName(TaskType type);
// Parses a task type. Ignores case ("Worker"). "master" means chief. Returns nullopt for any other
// name.
std::optional<TaskType> TaskTypeFromName(std::string_view name);

struct TaskId {
  TaskType type = TaskType::kChief;
  int index = 0;

  std::string ToString() const;     // Returns "worker:1", for files and messages between tasks.
  std::string DisplayName() const;  // Returns "worker 1", for log lines and errors.
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};
// Parses the result of ToString or DisplayName. Returns nullopt for any other text.
std::optional<TaskId> ParseTaskId(std::string_view text);

// A host and a port (1 to 65535). The host is a host name, an IPv4 address or an IPv6 address.
struct Address {
  std::string host;  // An IPv6 address has no brackets.
  int port = 0;

  std::string ToString() const;  // Returns "host:2222" or "[::1]:2222".
  // Returns ToString() in lower case, for comparisons, because host names ignore case.
  std::string Key() const;
  friend bool operator==(const Address& a, const Address& b) { return a.Key() == b.Key(); }
};
// The message of an error is a phrase without a subject, such as "has no port: write host:port".
// The caller puts the field and the value before the phrase.
absl::StatusOr<Address> ParseAddress(std::string_view text);
// Returns true for 127.0.0.0/8, ::1 and localhost.
bool IsLoopback(const Address& address);

}  // namespace muster
