// A program as a worker of a parameter-server job runs it, but without servers: its loop is refused
// what workers refuse. For `muster check`.
#pragma once

#include "muster/program.h"

namespace muster {

ProgramFactory ForServers(ProgramFactory program);

}  // namespace muster
