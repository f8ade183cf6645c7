// `muster data`. Converts files of training examples to another format.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeDataCommand();

}  // namespace muster
