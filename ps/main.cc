#include "common/base/process/termination_message.h"
#include "ps/task.h"

// muster-ps: holds part of the variables of a parameter-server job.
int main(int argc, char** argv) { return muster::ps::RunPs(argc, argv, muster::TerminationLog()); }
