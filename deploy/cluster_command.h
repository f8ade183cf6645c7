// `muster cluster [--json]`. Shows the cluster of this process's launch environment (TF_CONFIG):
// roster, ranks and chief. If the configuration is wrong, says why and how to fix it (exit code 2).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
