// The body of the program muster-evaluator. See docs/evaluator.md.
#pragma once

#include <functional>
#include <string>

#include "muster/json.h"
#include "muster/program.h"

namespace muster::evaluator {

struct EvaluatorParts {
  // Finds the job's "program" by name.
  std::function<absl::StatusOr<ProgramFactory>(const Json& program)> find_program;
  // A file, such as Kubernetes' terminationMessagePath, that also receives the error with which
  // this process ends. Empty: none.
  std::string termination_log;
};

// Reads arguments and environment, runs the evaluator and returns the process's exit code. main
// calls RunEvaluator once, before any other thread exists. SIGTERM and SIGINT make RunEvaluator
// return soon. A second SIGINT ends the process at once.
int RunEvaluator(int argc, char** argv, const EvaluatorParts& parts);

}  // namespace muster::evaluator
