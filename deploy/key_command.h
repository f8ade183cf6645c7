// `muster key`. Writes a cluster's run key, or its TLS certificates and private keys, to files.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeKeyCommand();

}  // namespace muster
