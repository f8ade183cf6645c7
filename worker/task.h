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
  TaskType binary;  // The task type that this program is for: chief or worker.
  ChiefRoleFactory start_chief;
  // Finds the program that the job's "program" selects, by name or by path.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // Path of a file, such as Kubernetes' terminationMessagePath. If this process ends with an error,
  // it also writes the error to this file. Empty: no file.
  std::string termination_log;
};

// Reads arguments and environment, runs the training task, and returns the process's exit code.
// SIGTERM and SIGINT request a stop of the job. In synchronous training, all members then stop
// after the same step. A second SIGINT ends the process at once.
int RunTask(int argc, char** argv, const TaskParts& parts);

}  // namespace muster::worker
