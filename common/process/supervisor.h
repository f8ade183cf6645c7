// Messages from a task to its supervisor, the process that starts and restarts tasks (`muster
// launch`). A message reports that a task of the job was lost or found again. The supervisor kills
// a lost process before it starts the successor, because a frozen process holds its port.
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
  // The process ID of the lost process, so that the supervisor does not kill its successor.
  int64_t pid = 0;
  std::string why;
  Duration grace{};  // Timeout for the process to end or to be found again.
};

// One message as a JSON line.
struct SupervisorLine {
  bool found = false;  // True if `lost.task` was found again.
  LostTask lost;
};
Json SupervisorLineToJson(const SupervisorLine& line);
// Returns true if `json` is a SupervisorLine and not a ProgressState.
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

// Returns a Supervisor that sends to a copy of the descriptor in the environment variable
// kProgressFdVariable (common/telemetry/progress.h). If the variable is not set, sends nothing.
std::unique_ptr<Supervisor> MakeSupervisor();

}  // namespace muster
