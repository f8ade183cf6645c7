// `muster run-tasks`. Starts the tasks of one host. `muster launch --hosts` runs this command on
// each host, through ssh. Users do not need this command.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeRunTasksCommand();

}  // namespace muster
