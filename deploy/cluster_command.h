// `muster cluster`. Shows the cluster of TF_CONFIG: roster, ranks and chief. With --from, derives
// it from the environment of a launcher that starts processes with ranks. With --exec, runs the
// task of this process. If the configuration is wrong, says why and how to fix it (exit code 2).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
