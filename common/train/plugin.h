// Programs in shared libraries, which declare MUSTER_PROGRAM(Class) (muster/stamp.h).
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// Returns the stamp that MUSTER_PROGRAM left in a file. Reads the file without running its code.
// Errors are ConfigurationErrors: no such file, no shared library for this machine, damaged, no
// program.
absl::StatusOr<std::string> ReadStamp(const std::string& path);

// Loads a plugin for the rest of the process's life. Errors are ConfigurationErrors. If the
// plugin's stamp differs from this library's, none of its code has run.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
