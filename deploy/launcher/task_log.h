// TaskLog appends the output lines of one task to logs/<role>-<index>.log.
#pragma once

#include <string>
#include <string_view>

#include "deploy/launcher/plan.h"
#include "deploy/launcher/processes/child.h"
#include "muster/status.h"

namespace muster::launcher {

class TaskLog {
 public:
  TaskLog() = default;  // Makes a log that writes nothing.
  // Opens the file. Creates `directory` if it is missing. On failure, returns a ConfigurationError
  // that names the file.
  static absl::StatusOr<TaskLog> Open(const std::string& directory, const PlannedTask& task);

  // Adds a line to the buffer. If a write fails (for example on a full disk), returns the error
  // once. Later calls drop the line and return OK.
  absl::Status Append(std::string_view line);
  // Writes buffered lines to the file.
  absl::Status Flush();

 private:
  std::string path_;
  Fd fd_;
  std::string pending_;
};

}  // namespace muster::launcher
