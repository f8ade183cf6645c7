// `muster check`. Tries a job before a cluster is started: runs the job's first step in this
// process, on the CPU.
#pragma once

#include <functional>
#include <memory>

#include "common/job/job.h"
#include "common/job/start_state.h"
#include "deploy/command.h"
#include "muster/program.h"

namespace muster {

struct CheckSources {
  // Finds the program that the job's "program" selects, by name or by path.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // Finds the state from which the chief would start the job. Changes no files.
  std::function<absl::StatusOr<StartState>(const Job& job)> find_beginning;
};
std::unique_ptr<Command> MakeCheckCommand(CheckSources sources);

}  // namespace muster
