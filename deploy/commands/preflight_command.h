// `muster preflight`. Checks a job's hosts and network before the job starts and occupies GPUs. See
// docs/preflight.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakePreflightCommand();

}  // namespace muster
