// Runs a task for `muster cluster --exec`: by exec, or as a child process that is restarted after a
// failure. Use only on the main thread of a process that starts no other children.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster::ranks {

struct TaskCommand {
  std::vector<std::string> arguments;  // The program's path and its arguments.
  // The task has the environment of this process with these variables added or replaced.
  std::map<std::string, std::string> environment;
  launcher::PlannedTask task;  // For messages.
  // How often the outer launcher (Slurm, torchrun) has restarted the task. SuperviseTask adds its
  // own restarts of the task to this number.
  int restarts = 0;
};

// Replaces this process by the task (exec). Returns only if exec fails.
absl::Status ExecTask(const TaskCommand& command);

// Runs the task as a child, and restarts the task by the rules of `muster launch --restart`
// (docs/launch.md). Forwards SIGTERM and SIGINT to the child. On SIGHUP, sends SIGTERM to the
// child, except if this process ignores SIGHUP. The kernel kills the child if this process dies.
// Blocks until the child has ended and is not restarted. Returns the exit code of the last child,
// or 128 + the number of the signal that killed the child.
absl::StatusOr<int> SuperviseTask(const TaskCommand& command,
                                  const launcher::LaunchOptions& options);

}  // namespace muster::ranks
