// `muster preflight`. Finds the problems of a job before it occupies a GPU. See docs/preflight.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakePreflightCommand();

}  // namespace muster
