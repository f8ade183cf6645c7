// `muster key`: the run key of a cluster, and certificates for those who want TLS with files.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeKeyCommand();

}  // namespace muster
