// Runs the task of this process's place in a cluster: in this process's stead, or as a child that
// is started again when it fails. Use only on the main thread of a process that starts nothing
// else.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster::ranks {

struct TaskCommand {
  std::vector<std::string> arguments;  // The first one is the program's path.
  // Added to this process's environment, or replacing its values.
  std::map<std::string, std::string> environment;
  launcher::PlannedTask task;  // For messages.
  int restarts = 0;            // How often the task was started before this process.
};

// Replaces this process by the task. Returns only an error.
absl::Status ExecTask(const TaskCommand& command);

// Starts the task as a child, passes SIGTERM and SIGINT on to it, and SIGHUP as SIGTERM unless it
// is ignored, and starts it again by the rules of `muster launch --restart`. The kernel kills the
// child when this process dies. Returns the exit code of the last child, or 128 + its signal.
absl::StatusOr<int> SuperviseTask(const TaskCommand& command,
                                  const launcher::LaunchOptions& options);

}  // namespace muster::ranks
