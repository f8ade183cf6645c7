// The body of the program muster-evaluator. See docs/evaluator.md.
#pragma once

#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/program.h"

namespace muster::evaluator {

struct EvaluatorParts {
  // Finds the program that the job's "program" selects, by name or by path.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // Path of a file, such as Kubernetes' terminationMessagePath. If this process ends with an error,
  // it also writes the error to this file. Empty: no file.
  std::string termination_log;
};

// Reads arguments and environment, runs the evaluator and returns the process's exit code. main
// calls RunEvaluator once, before any other thread exists. SIGTERM and SIGINT make RunEvaluator
// return soon. A second SIGINT ends the process at once.
int RunEvaluator(int argc, char** argv, const EvaluatorParts& parts);

}  // namespace muster::evaluator
