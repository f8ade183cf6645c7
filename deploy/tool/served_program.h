// Wraps a program for `muster check`. The program then runs as on a worker of a parameter-server
// job, but needs no servers. Its loop refuses the calls that workers refuse.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
