// `muster export`: a trained program as a file for Python.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExportCommand();

}  // namespace muster
