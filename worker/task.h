// The body of muster-chief and muster-worker. main calls RunTask once, before any other thread
// exists.
#pragma once

#include <functional>
#include <string>

#include "common/cluster/task.h"
#include "common/train/chief_role.h"
#include "muster/program.h"

namespace muster::worker {

struct TaskParts {
  TaskType binary;  // The task type that this binary is for.
  ChiefRoleFactory start_chief;
  // Finds the job's "program" by name.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // A file that also receives this process's last line. Empty: none.
  std::string termination_log;
};

// Runs a training task from its arguments and environment to its end. Returns the process's exit
// code. SIGTERM and SIGINT request a stop at an agreed step. A second signal ends the process at
// once.
int RunTask(int argc, char** argv, const TaskParts& parts);

}  // namespace muster::worker
