// `muster cluster`. Prints the cluster of TF_CONFIG: roster, ranks and chief. With --from, derives
// the cluster from the environment of a launcher that starts processes with ranks. With --exec,
// runs the task of this process. For an invalid configuration, prints the error and its fix (exit
// code 2).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
