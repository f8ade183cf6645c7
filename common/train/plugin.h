// Programs in shared libraries, which declare MUSTER_PROGRAM(Class) (muster/stamp.h).
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// Returns the stamp that MUSTER_PROGRAM stored in the library. Reads the file without running its
// code. Returns a ConfigurationError if the file is missing or damaged, is no shared library for
// this machine, or contains no program.
absl::StatusOr<std::string> ReadStamp(const std::string& path);

// Loads a plugin for the rest of the process's life. Errors are ConfigurationErrors. If the
// plugin's stamp differs from this library's, none of its code has run.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
