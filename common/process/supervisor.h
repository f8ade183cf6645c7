// Messages from a task to the process that started it and may restart it (`muster launch`): which
// task of its job is lost. A frozen process holds its port, so it is killed before its successor
// starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LostTask {
  std::string task;  // Such as "worker:1".
  int64_t pid = 0;   // Of the lost process, so that its successor is not killed.
  std::string why;
  Duration grace{};  // Time within which the process may still end or be found again.
};

// One message as a JSON line.
struct SupervisorLine {
  bool found = false;  // True where `lost.task` was found again.
  LostTask lost;
};
Json SupervisorLineToJson(const SupervisorLine& line);
// True where `json` is a SupervisorLine and not a ProgressState.
bool IsSupervisorLine(const Json& json);
absl::StatusOr<SupervisorLine> SupervisorLineFromJson(const Json& json);

// Thread-safe. Neither blocks nor fails. Drops what cannot be sent.
class Supervisor {
 public:
  virtual ~Supervisor() = default;
  virtual void Lost(const LostTask& lost) = 0;
  virtual void Found(const std::string& task) = 0;
};

// Sends over a copy of the descriptor in kProgressFdVariable (common/telemetry/progress.h). Without
// that variable, sends nothing.
std::unique_ptr<Supervisor> MakeSupervisor();

}  // namespace muster
