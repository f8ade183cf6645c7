// `muster evaluate`. Computes the metrics of a checkpoint without a cluster.
#pragma once

#include <functional>
#include <memory>

#include "deploy/command.h"
#include "muster/json.h"
#include "muster/program.h"

namespace muster {

// Finds the program that the job's "program" selects, by name or by path.
using FindProgramFunction = std::function<absl::StatusOr<ProgramFactory>(const Json& program)>;

std::unique_ptr<Command> MakeEvaluateCommand(FindProgramFunction find_program);

}  // namespace muster
