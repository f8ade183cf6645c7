// Programs from outside: shared libraries that say MUSTER_PROGRAM(Class) (muster/stamp.h).
#pragma once

#include <string>

#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// The stamp that MUSTER_PROGRAM left in a file. Reads it, and runs nothing of it. Errors are
// ConfigurationErrors: no such file, no shared library for this machine, damaged, no program.
absl::StatusOr<std::string> ReadStamp(const std::string& path);

// Loads a plugin for the rest of the process's life. Errors are ConfigurationErrors; where the
// stamp is not this library's own, nothing of the file has run.
absl::StatusOr<ProgramFactory> LoadPlugin(const std::string& path);

}  // namespace muster
