// Commands of `muster` that need LibTorch run in another binary, muster-tool (deploy/tool/).
// `muster` itself therefore starts fast and needs no LibTorch. The command that needs libarchive
// runs in muster-bundle (deploy/bundle/) for the same reason.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

// Makes the command `muster NAME ...`, which runs `BINARY NAME ...` from the folder of this binary.
std::unique_ptr<Command> MakeToolCommand(const std::string& name, const std::string& about,
                                         const std::string& binary = "muster-tool");

}  // namespace muster
