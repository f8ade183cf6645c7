#include "chief/chief.h"
#include "common/base/process/termination_message.h"
#include "examples/programs.h"
#include "worker/task.h"

// muster-chief: coordinates the cluster, publishes the results, and trains as rank 0.
int main(int argc, char** argv) {
  return muster::worker::RunTask(argc, argv,
                                 {muster::TaskType::kChief, muster::chief::StartChief,
                                  muster::FindProgram, muster::TerminationLog()});
}
