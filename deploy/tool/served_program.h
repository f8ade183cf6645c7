// Runs a program as a worker of a parameter-server job does, but without servers. Its loop refuses
// the calls that workers refuse. Used by `muster check`.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
