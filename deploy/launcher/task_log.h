// The output of one task in logs/<role>-<index>.log, line by line, appended to that of earlier
// launches.
#pragma once

#include <string>
#include <string_view>

#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster {

class TaskLog {
 public:
  TaskLog() = default;  // Writes nothing.
  // Creates `directory` if it is missing. Errors are ConfigurationErrors that name the file.
  static absl::StatusOr<TaskLog> Open(const std::string& directory, const PlannedTask& task);

  // Returns an error (a full disk) once. After it, the log accepts no more lines.
  absl::Status Append(std::string_view line);
  // Writes buffered lines to the file.
  absl::Status Flush();

 private:
  std::string path_;
  Fd fd_;
  std::string pending_;
};

}  // namespace muster
