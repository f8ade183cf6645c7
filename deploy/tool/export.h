// `muster export`. Writes a checkpoint as one file: the weights as safetensors, or a trained
// program for torch.export.load in Python.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExportCommand();

}  // namespace muster
