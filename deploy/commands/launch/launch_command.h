// `muster launch --workers N --job FILE`. Runs a job in several processes on this host, or, with
// --hosts, on several hosts. See docs/launch.md and docs/hosts.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeLaunchCommand();

}  // namespace muster
