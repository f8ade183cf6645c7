// What a task tells the process that started it and may start it again (`muster launch`): which
// task of its job is lost. A frozen process holds its port: it is ended before another one takes
// its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LostTask {
  std::string task;  // "worker:1"
  int64_t pid = 0;   // of the process that was lost: its successor is not meant
  std::string why;
  Duration grace{};  // it may still end by itself, or be found again, for this long
};

// A line on the way.
struct SupervisorLine {
  bool found = false;  // `lost.task` is there after all
  LostTask lost;
};
Json SupervisorLineToJson(const SupervisorLine& line);
// Whether `json` is one of these lines, and not a ProgressState's.
bool IsSupervisorLine(const Json& json);
absl::StatusOr<SupervisorLine> SupervisorLineFromJson(const Json& json);

// Any thread. Neither blocks nor fails: what cannot be told is dropped.
class Supervisor {
 public:
  virtual ~Supervisor() = default;
  virtual void Lost(const LostTask& lost) = 0;
  virtual void Found(const std::string& task) = 0;
};

// Over the descriptor of kProgressFdVariable (common/telemetry/progress.h), of which it takes a
// copy; where there is none, nobody is told.
std::unique_ptr<Supervisor> MakeSupervisor();

}  // namespace muster
