// `muster cluster [--json]`: what this process's launch environment (TF_CONFIG) says about the
// cluster: roster, ranks, chief; or what is wrong with it and how to mend it (exit code 2).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeClusterCommand();

}  // namespace muster
