// `muster launch --workers N --job FILE`: a local cluster of real processes on this host, from its
// start to the job's verdict. docs/launch.md describes it.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeLaunchCommand();

}  // namespace muster
