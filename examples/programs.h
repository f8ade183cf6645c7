// Finds the program that a job file names.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// `program` is the job's "program": the name of a built-in program, or the path of a plugin. Any
// other name is a ConfigurationError that suggests the nearest name.
absl::StatusOr<ProgramFactory> FindProgram(const Json& program);

}  // namespace muster
