// `muster run-tasks` is the part of `muster launch --hosts` that runs on each host. The launcher
// starts run-tasks through ssh. run-tasks starts the host's tasks, sends their output and exit
// codes to the launcher, and forwards the launcher's signals to the tasks.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::hosts {

// Exchanges messages (messages.h) with the launcher over standard input and output. Blocks until
// the input ends, the output breaks, a message is invalid, a signal requests the end, or the
// launcher is silent for kSilenceLimit. The time in a SuspendRequest replaces kSilenceLimit until
// the next message. Then kills the remaining tasks and returns 0, the exit code of run-tasks.
// `launch` identifies the launch and the host. After a reconnection, first waits for an earlier
// process with the same `launch` to end. Returns PeerLost if that process does not end in time.
// REQUIRES: called on the main thread of a process that starts no other children.
absl::StatusOr<int> RunTasks(const std::string& launch);

}  // namespace muster::hosts
