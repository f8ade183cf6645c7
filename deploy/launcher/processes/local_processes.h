// Implements Processes (processes.h) for tasks on this host. The tasks are children of the
// launcher, and their addresses are free ports of 127.0.0.1.
#pragma once

#include <memory>

#include "deploy/launcher/launcher.h"
#include "deploy/launcher/processes/processes.h"

namespace muster::launcher {

// `request` and `output` must outlive the result.
std::unique_ptr<Processes> MakeLocalProcesses(const LaunchRequest& request, ProcessOutput& output);

}  // namespace muster::launcher
