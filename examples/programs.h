// Finds the program that a job file names.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// `program` is the value of "program" in the job file. It is the name of a built-in program, the
// path of a plugin (a shared library with a program, see muster/stamp.h), or an object that names
// an exported program (docs/exported.md). Any other value gives a ConfigurationError. For an
// unknown name, the error suggests the most similar built-in name.
absl::StatusOr<ProgramFactory> FindProgram(const Json& program);

}  // namespace muster
