// Wraps a program for `muster check` so that it behaves as on a worker of a parameter-server job,
// but needs no servers. The loop then refuses the calls that workers refuse.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
