// A training task's whole life, from its arguments and environment to its exit code: the body of
// muster-chief and muster-worker. Call once, from main, before any thread exists.
#pragma once

#include <functional>
#include <string>

#include "common/cluster/task.h"
#include "common/train/chief_role.h"
#include "muster/program.h"

namespace muster {

struct TaskParts {
  TaskType binary;  // which of the two this is
  ChiefRoleFactory start_chief;
  // The job's "program" by name.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // Gets this process's last line too (common/base/termination_message.h); empty: none does.
  std::string termination_log;
};

// Returns the process's exit code. SIGTERM and SIGINT ask for a stop at an agreed step; a second
// one ends the process at once.
int RunTask(int argc, char** argv, const TaskParts& parts);

}  // namespace muster
