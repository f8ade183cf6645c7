// `muster run-tasks`. `muster launch --hosts` starts it on each host. Not for users.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeRunTasksCommand();

}  // namespace muster
