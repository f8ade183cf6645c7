// The programs that a job file can name.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// `program` is the job's "program": the name of a built-in one, or the path of a plugin. Anything
// else is a ConfigurationError that suggests the nearest name.
absl::StatusOr<ProgramFactory> FindProgram(const Json& program);

}  // namespace muster
