// TaskLog appends the output lines of one task to logs/<role>-<index>.log.
#pragma once

#include <string>
#include <string_view>

#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster::launcher {

class TaskLog {
 public:
  TaskLog() = default;  // Makes a log that writes nothing.
  // Opens the file. Creates `directory` if it is missing. Returns a ConfigurationError that names
  // the file.
  static absl::StatusOr<TaskLog> Open(const std::string& directory, const PlannedTask& task);

  // Returns an error (such as a full disk) once. Afterwards the log drops all lines and returns OK.
  absl::Status Append(std::string_view line);
  // Writes buffered lines to the file.
  absl::Status Flush();

 private:
  std::string path_;
  Fd fd_;
  std::string pending_;
};

}  // namespace muster::launcher
