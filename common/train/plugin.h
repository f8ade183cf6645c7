// Loads plugins. A plugin is a shared library with a program, declared by MUSTER_PROGRAM(Class)
// (muster/stamp.h).
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// Returns the stamp that MUSTER_PROGRAM stored in the library. The stamp describes the library
// against which the plugin was built. Reads the file without running its code. Returns a
// ConfigurationError if the file is missing or damaged, is not a shared library for this machine,
// or contains no program.
absl::StatusOr<std::string> ReadStamp(const std::string& path);

// Loads a plugin, which stays loaded until the process exits. Errors are ConfigurationErrors. The
// stamp is compared first: a plugin with another stamp than this library is refused before any of
// its code runs.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
