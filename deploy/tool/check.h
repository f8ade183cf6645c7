// `muster check`: what a job would do in its first step, on the CPU and alone, before a cluster is
// started.
#pragma once

#include <functional>
#include <memory>

#include "deploy/command.h"
#include "muster/program.h"

namespace muster {

// `find_program`: the job's "program" by name or path.
std::unique_ptr<Command> MakeCheckCommand(
    std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program);

}  // namespace muster
