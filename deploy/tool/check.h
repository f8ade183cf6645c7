// `muster check`: what a job would do in its first step, on the CPU and alone, before a cluster is
// started.
#pragma once

#include <functional>
#include <memory>

#include "common/train/job.h"
#include "common/train/job_beginning.h"
#include "deploy/command.h"
#include "muster/program.h"

namespace muster {

struct CheckSources {
  // The job's "program" by name or path.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // As the chief decides it, but nothing is moved or removed.
  std::function<absl::StatusOr<JobBeginning>(const Job& job)> find_beginning;
};
std::unique_ptr<Command> MakeCheckCommand(CheckSources sources);

}  // namespace muster
