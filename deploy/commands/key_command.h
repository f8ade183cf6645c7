// `muster key`. Writes a cluster's run key, or its TLS certificates and private keys, to files. The
// tasks of a cluster use the key or the certificates to prove their identity to each other
// (docs/security.md).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeKeyCommand();

}  // namespace muster
