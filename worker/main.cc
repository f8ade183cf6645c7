#include "chief/chief.h"
#include "common/base/process/termination_message.h"
#include "examples/programs.h"
#include "worker/task.h"

// muster-worker: a training member. It is also the chief if it is worker 0 of a cluster without a
// chief, or runs alone.
int main(int argc, char** argv) {
  return muster::worker::RunTask(argc, argv,
                                 {muster::TaskType::kWorker, muster::chief::StartChief,
                                  muster::FindProgram, muster::TerminationLog()});
}
