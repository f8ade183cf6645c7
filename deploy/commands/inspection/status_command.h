// `muster status`. Prints the state of a running job, or of the run whose output is in a model_dir.
// See docs/status.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeStatusCommand();

}  // namespace muster
