// `muster predict`. Computes the outputs of a checkpoint for an input, without a cluster.
#pragma once

#include <memory>

#include "deploy/command.h"
#include "deploy/tool/evaluate.h"

namespace muster {

std::unique_ptr<Command> MakePredictCommand(FindProgramFunction find_program);

}  // namespace muster
