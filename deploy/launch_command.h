// `muster launch --workers N --job FILE`. Runs a job in a local cluster of processes on this host.
// See docs/launch.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeLaunchCommand();

}  // namespace muster
