// Runs a command of this host to its end.
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

// The first argument is looked for in PATH. Kills the command after `timeout`, which is a
// DeadlinePassed, and when a signal asks to stop, which is a Preempted.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         launcher::SignalQueue& signals, Duration timeout);

// Returns Preempted if one of the signals that came asks to stop.
absl::Status CheckSignals(launcher::SignalQueue& signals);

// Returns the path of a program that is named as for a shell. ConfigurationError if there is none.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace muster::hosts
