// Runs a command on this host and returns its output.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/processes/signals.h"
#include "muster/status.h"

namespace muster::hosts {

struct CommandResult {
  int code = 0;  // The exit code, or 128 + signal number.
  std::string out, err;
};

// Runs a command and blocks until it ends. Looks for the program arguments[0] in PATH. After
// `timeout`, kills the command and returns DeadlinePassed. If a signal in `signals` requests a
// stop, kills the command and returns Preempted.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         launcher::SignalQueue& signals, Duration timeout);

// Returns Preempted if SIGINT, SIGTERM or SIGHUP is pending in `signals`. Consumes all pending
// signals.
absl::Status CheckSignals(launcher::SignalQueue& signals);

// Returns the path of a program in PATH. If `name` contains a '/', returns `name`. Returns
// ConfigurationError if the program is not found.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace muster::hosts
