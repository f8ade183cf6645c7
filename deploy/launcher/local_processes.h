// Runs the processes of a launch on this host, as children of the launcher with free ports of the
// loopback.
#pragma once

#include <memory>

#include "deploy/launcher/launcher.h"
#include "deploy/launcher/processes.h"

namespace muster::launcher {

// `request` and `output` must outlive the result.
std::unique_ptr<Processes> MakeLocalProcesses(const LaunchRequest& request, ProcessOutput& output);

}  // namespace muster::launcher
