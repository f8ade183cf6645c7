// Loads plugins. A plugin is a shared library that contains a muster::Program. The macro
// MUSTER_PROGRAM(Class) (muster/stamp.h) declares the program.
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// Returns the stamp of the plugin `path`. MUSTER_PROGRAM stores a stamp in the plugin: a text with
// the versions of Muster, LibTorch and the C++ ABI with which the plugin was built. Reads the file
// without running its code. Returns a ConfigurationError in three cases: the file is missing or
// damaged, it is not a shared library for this machine, or it does not contain exactly one program.
absl::StatusOr<std::string> ReadStamp(const std::string& path);

// Loads a plugin, which stays loaded until the process exits. First compares the plugin's stamp
// with the stamp of this binary. If they differ, returns an error and runs no code of the plugin.
// All errors are ConfigurationErrors.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
