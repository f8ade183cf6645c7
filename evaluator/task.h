// An evaluator's whole life, from its arguments and environment to its exit code: the body of
// muster-evaluator. Call once, from main, before any thread exists. docs/evaluator.md.
#pragma once

#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/program.h"

namespace muster {

struct EvaluatorParts {
  // The job's "program" by name.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  std::string termination_log;  // gets the last line of a process that fails
};

// Returns the process's exit code. SIGTERM and SIGINT end it soon, whatever it does; a second
// SIGINT at once.
int RunEvaluator(int argc, char** argv, const EvaluatorParts& parts);

}  // namespace muster
