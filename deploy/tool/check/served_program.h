// Wraps a program of a job with parameter servers for `muster check`. The wrapped program runs as
// on a worker of the job, but needs no servers. Its Loop refuses the calls that a worker's Loop
// refuses.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
