// `muster run-tasks`, the part of `muster launch --hosts` that runs on each host. It starts tasks
// for the launcher, sends their output and exit codes to it, and forwards its signals.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::hosts {

// Serves the launcher over standard input and output (messages.h). Returns the exit code once the
// input ends, a signal requests the end, or the launcher was silent for kSilenceLimit or the time
// of its SuspendRequest. Kills the remaining tasks before it returns. `launch` names the launch and
// the host's number in it. First waits until an earlier process with the same `launch` has ended
// its tasks, and returns PeerLost if it does not end them in time. REQUIRES: the calling thread is
// the main thread, and this process starts no other children.
absl::StatusOr<int> RunTasks(const std::string& launch);

}  // namespace muster::hosts
