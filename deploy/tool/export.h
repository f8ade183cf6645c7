// `muster export`. Writes a checkpoint as one file: weights to load, or a trained program for
// Python.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExportCommand();

}  // namespace muster
