// Some commands of `muster` run in another binary. Commands that need LibTorch run in muster-tool
// (deploy/tool/). The command that needs libarchive runs in muster-bundle (deploy/bundle/).
// `muster` itself therefore starts fast and needs neither library.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

// Makes the command `muster NAME ...`. The command runs `BINARY NAME ...` with the same arguments.
// BINARY is in the folder of `muster`. `about` is the line for --help.
std::unique_ptr<Command> MakeToolCommand(const std::string& name, const std::string& about,
                                         const std::string& binary = "muster-tool");

}  // namespace muster
