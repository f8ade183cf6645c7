// The body of muster-evaluator, from arguments and environment to exit code. Call once, from main,
// before any thread exists. See docs/evaluator.md.
#pragma once

#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/program.h"

namespace muster {

struct EvaluatorParts {
  // Finds the job's "program" by name.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  std::string termination_log;  // Receives the last line of a process that fails.
};

// Returns the process's exit code. SIGTERM and SIGINT end it soon, whatever it is doing. A second
// SIGINT ends it at once.
int RunEvaluator(int argc, char** argv, const EvaluatorParts& parts);

}  // namespace muster
