// `muster run-tasks`, which `muster launch --hosts` starts on each host. People do not call it.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeRunTasksCommand();

}  // namespace muster
