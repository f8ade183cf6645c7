// `muster cluster [--json]`. Prints the cluster in this process's environment (TF_CONFIG): tasks,
// ranks and chief. If the configuration is wrong, prints why and how to fix it, with exit code 2.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
