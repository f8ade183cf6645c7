// `muster key`. Creates the run key of a cluster, and certificates for TLS with files.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeKeyCommand();

}  // namespace muster
