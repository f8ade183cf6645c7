// Runs the task of this process's rank: by exec, or as a child that is restarted after a failure.
// Use only on the main thread of a process that starts no other children.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster::ranks {

struct TaskCommand {
  std::vector<std::string> arguments;  // The first one is the program's path.
  // Variables that are added to this process's environment or replace its values.
  std::map<std::string, std::string> environment;
  launcher::PlannedTask task;  // For messages.
  int restarts = 0;            // The number of starts of the task before this process.
};

// Replaces this process by the task (exec). Returns only if that fails.
absl::Status ExecTask(const TaskCommand& command);

// Runs the task as a child, and restarts it by the rules of `muster launch --restart`. Forwards
// SIGTERM and SIGINT to it, and SIGHUP as SIGTERM unless SIGHUP is ignored. The kernel kills the
// child if this process dies. Returns the exit code of the last child, or 128 + its signal.
absl::StatusOr<int> SuperviseTask(const TaskCommand& command,
                                  const launcher::LaunchOptions& options);

}  // namespace muster::ranks
