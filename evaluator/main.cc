#include "common/base/process/termination_message.h"
#include "evaluator/task.h"
#include "examples/programs.h"

// muster-evaluator: follows the chief's checkpoints and evaluates them.
int main(int argc, char** argv) {
  return muster::evaluator::RunEvaluator(argc, argv,
                                         {muster::FindProgram, muster::TerminationLog()});
}
