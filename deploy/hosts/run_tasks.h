// The side of `muster launch --hosts` on a host: starts the tasks that the launcher asks for, sends
// their output and their exit codes, and passes signals on.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::hosts {

// Serves the launcher through standard input and output (messages.h) until the input ends, the
// launcher is silent for kSilenceLimit (or for what it asked for), or a signal asks this process to
// end. All tasks have ended when it returns, killed where they still ran. `launch` is the same for
// all processes of one launch; waits until an earlier one on this host has ended its tasks. Returns
// the exit code. REQUIRES: the calling thread is the main thread, and this process starts nothing
// else.
absl::StatusOr<int> RunTasks(const std::string& launch);

}  // namespace muster::hosts
