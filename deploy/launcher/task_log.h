// logs/<role>-<index>.log: what one task wrote, line by line, appended to what earlier launches
// left there.
#pragma once

#include <string>
#include <string_view>

#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster {

class TaskLog {
 public:
  TaskLog() = default;  // writes nothing
  // Makes `directory` where it is missing. Errors are ConfigurationErrors that name the file.
  static absl::StatusOr<TaskLog> Open(const std::string& directory, const PlannedTask& task);

  // An error (a full disk) is returned once; the task's log ends there.
  absl::Status Append(std::string_view line);
  // What is still in memory goes to the file.
  absl::Status Flush();

 private:
  std::string path_;
  Fd fd_;
  std::string pending_;
};

}  // namespace muster
