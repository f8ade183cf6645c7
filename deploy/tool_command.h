// The commands of `muster` that need LibTorch are in another binary, muster-tool (deploy/tool/): so
// `muster` starts in no time and needs no LibTorch.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

// `muster NAME ...` becomes `muster-tool NAME ...`, from the folder of this binary.
std::unique_ptr<Command> MakeToolCommand(const std::string& name, const std::string& about);

}  // namespace muster
