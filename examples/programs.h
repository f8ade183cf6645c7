// The programs that a job file can name.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {

// `program` is the job's "program": the name of a built-in one. Anything else is a
// ConfigurationError that suggests the nearest name.
absl::StatusOr<ProgramFactory> FindProgram(const Json& program);

// The built-in programs, each in its own file; to add one, list it in programs.cc.
std::unique_ptr<Program> MakeFashionMnist();
std::unique_ptr<Program> MakeLinear();
std::unique_ptr<Program> MakeMatrixFactorization();

}  // namespace muster
