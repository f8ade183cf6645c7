// `muster manifest` prints the Kubernetes objects of a job.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeManifestCommand();

}  // namespace muster
