// `muster run-tasks` is the part of `muster launch --hosts` that runs on each host. The launcher
// starts run-tasks through ssh. run-tasks starts the host's tasks, sends their output and exit
// codes to the launcher, and forwards the launcher's signals to the tasks.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::hosts {

// Exchanges messages with the launcher over standard input and output (messages.h). Blocks until
// the input ends, a signal requests the end, or the launcher was silent for kSilenceLimit. After a
// SuspendRequest, the time in this request replaces kSilenceLimit. Kills the remaining tasks and
// returns the exit code. `launch` identifies the launch and the host. If the launcher reconnects,
// an earlier run-tasks process with the same `launch` may still have tasks. RunTasks first waits
// until that process has ended, and returns PeerLost if it does not end in time. REQUIRES: the
// calling thread is the main thread, and this process starts no other children.
absl::StatusOr<int> RunTasks(const std::string& launch);

}  // namespace muster::hosts
