// Loads plugins. A plugin is a shared library that contains a muster::Program. The macro
// MUSTER_PROGRAM(Class) (muster/stamp.h) declares the program.
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// Loads a plugin, which stays loaded until the process exits. First compares the plugin's stamp
// with the stamp of this binary. If they differ, returns an error and runs no code of the plugin.
// All errors are ConfigurationErrors.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
