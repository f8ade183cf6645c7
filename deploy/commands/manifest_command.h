// `muster manifest`. Prints the Kubernetes objects of a job as YAML. See docs/kubernetes.md.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeManifestCommand();

}  // namespace muster
