// `muster preflight`: what a job would stumble over, found before a GPU is held. docs/preflight.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakePreflightCommand();

}  // namespace muster
