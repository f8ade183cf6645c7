// Messages from a task to its supervisor, such as `muster launch`. The supervisor starts and
// restarts tasks. A message reports that a task of the job does not answer (lost), or that a lost
// task answers again (found). The supervisor kills the process of a lost task before it starts
// another process for the task. Otherwise a frozen process would still occupy the task's port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LostTask {
  std::string task;  // For example "worker:1".
  // The process ID of the lost process. The supervisor kills only this process.
  int64_t pid = 0;
  std::string why;
  Duration grace{};  // How long the supervisor waits before it kills the process.
};

// A message. On the pipe to the supervisor, each message is one line of JSON.
struct SupervisorLine {
  bool found = false;  // True if lost.task was found again. All other fields are then unset.
  LostTask lost;
};
Json SupervisorLineToJson(const SupervisorLine& line);
// Returns true if `json` is a SupervisorLine, and false if it is a ProgressState. Both kinds of
// messages use the same pipe.
bool IsSupervisorLine(const Json& json);
absl::StatusOr<SupervisorLine> SupervisorLineFromJson(const Json& json);

// A task's connection to its supervisor. Thread-safe. Calls neither block nor fail. A message that
// cannot be sent is dropped.
class Supervisor {
 public:
  virtual ~Supervisor() = default;
  virtual void ReportLost(const LostTask& lost) = 0;
  virtual void ReportFound(const std::string& task) = 0;
};

// Returns the connection to this task's supervisor. This function duplicates the file descriptor in
// the environment variable kProgressFdVariable (common/telemetry/progress.h). If the variable is
// not set, the result discards all messages.
std::unique_ptr<Supervisor> MakeSupervisor();

}  // namespace muster
