// For `muster check`: wraps the program of a parameter-server job. The wrapped program runs as on a
// worker of the job, but needs no servers. The Loop of the wrapped program refuses the same calls
// as the Loop of a worker.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
