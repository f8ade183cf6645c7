#include "chief/chief.h"
#include "common/base/termination_message.h"
#include "examples/programs.h"
#include "worker/task.h"

// muster-worker: a training member; also the chief, as worker 0 of a cluster without one, or alone.
int main(int argc, char** argv) {
  return muster::RunTask(argc, argv,
                         {muster::TaskType::kWorker, muster::StartChief, muster::FindProgram,
                          muster::TerminationLog()});
}
