// `muster key` creates a cluster's run key, or its TLS certificates and their keys as files.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeKeyCommand();

}  // namespace muster
