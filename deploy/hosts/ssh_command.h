// Builds command lines for ssh and for the shells of the hosts, and interprets ssh's error
// messages. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::hosts {

// Splits --ssh, "ssh -p 2222 -F 'my config'", into words. Quotes group a word, and a backslash
// escapes the next character. Returns ConfigurationError for an unclosed quote or an empty command.
absl::StatusOr<std::vector<std::string>> SplitCommand(const std::string& text);

// Returns the command line of the first session with a host. Later sessions share its connection
// through the control socket `control`, so ssh authenticates once.
std::vector<std::string> FirstSession(const std::vector<std::string>& ssh,
                                      const std::string& control, const std::string& target,
                                      const std::string& command);
// Returns the command line of a session that shares the connection of the first one.
std::vector<std::string> FurtherSession(const std::vector<std::string>& ssh,
                                        const std::string& control, const std::string& target,
                                        const std::string& command);
// Returns the command line that prints ssh's configuration for the host without connecting.
std::vector<std::string> PrintConfiguration(const std::vector<std::string>& ssh,
                                            const std::string& target);
// Returns the HostName in the output of PrintConfiguration, "" if it has none.
std::string HostNameIn(std::string_view configuration);

// Returns the command of the first session, for any login shell. The command prints the line
// kShellReady, then reads one line and executes it.
std::string ShellCommand();
inline constexpr std::string_view kShellReady = "muster-shell-ready";
// Returns the line for that shell. It changes to `folder` (quoted for the shell), prints a line
// with kVersionIs and the version of `muster`, and replaces the shell by `muster run-tasks LAUNCH`.
std::string StartLine(const std::string& folder, const std::string& muster,
                      const std::string& launch);
inline constexpr std::string_view kVersionIs = "muster-version ";

// Returns the error of a failed connection. It is PeerLost if another attempt may succeed (the host
// refuses the connection or does not answer), else ConfigurationError. `message` is ssh's last
// line.
absl::Status CannotConnect(const std::string& target, std::string_view message);

}  // namespace muster::hosts
