// `muster cluster`. Prints the cluster of TF_CONFIG: its tasks with their addresses and ranks, and
// the chief. With --from, derives the cluster from the environment variables of a launcher that
// starts processes with ranks, such as srun or mpirun. With --exec, runs the task of this process.
// For an invalid configuration, prints the error and its fix, and exits with code 2.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
