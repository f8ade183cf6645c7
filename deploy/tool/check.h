// `muster check`. Runs the first step of a job on the CPU in this process, before a cluster is
// started.
#pragma once

#include <functional>
#include <memory>

#include "common/job/job.h"
#include "common/job/start_state.h"
#include "deploy/command.h"
#include "muster/program.h"

namespace muster {

struct CheckSources {
  // Finds the job's "program" by name or path.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // Finds the state from which the job will start. Follows the chief's rules, but changes no files.
  std::function<absl::StatusOr<StartState>(const Job& job)> find_beginning;
};
std::unique_ptr<Command> MakeCheckCommand(CheckSources sources);

}  // namespace muster
