// Runs a command on this host and waits for its end.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/signals.h"
#include "muster/status.h"

namespace muster::hosts {

struct CommandResult {
  int code = 0;  // The exit code, or 128 + signal.
  std::string out, err;
};

// Runs a command, whose program is searched in PATH, and returns its output. Kills the command and
// returns DeadlinePassed after `timeout`, or Preempted if a signal requests a stop.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         launcher::SignalQueue& signals, Duration timeout);

// Returns Preempted if SIGINT, SIGTERM or SIGHUP is pending. Consumes all pending signals.
absl::Status CheckSignals(launcher::SignalQueue& signals);

// Finds a program in PATH. Returns a name with a '/' unchanged. Returns ConfigurationError if the
// program is not found.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace muster::hosts
