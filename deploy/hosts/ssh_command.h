// Builds command lines for ssh and for the shells of the hosts, and interprets ssh's error
// messages. The parameter `ssh` is the result of SplitCommand, and `target` is a destination for
// ssh. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::hosts {

// Splits the value of --ssh, such as "ssh -p 2222 -F 'my config'", into words. A quoted text
// belongs to one word. Outside of single quotes, a backslash escapes the next character. Returns
// ConfigurationError for an unclosed quote or an empty command.
absl::StatusOr<std::vector<std::string>> SplitCommand(const std::string& text);

// Returns the command line that connects to a host and runs `command` there. ssh opens the control
// socket `control`. Later sessions share the connection through this socket, so ssh authenticates
// only once.
std::vector<std::string> FirstSession(const std::vector<std::string>& ssh,
                                      const std::string& control, const std::string& target,
                                      const std::string& command);
// Returns the command line that runs `command` on the host over the connection of FirstSession.
std::vector<std::string> FurtherSession(const std::vector<std::string>& ssh,
                                        const std::string& control, const std::string& target,
                                        const std::string& command);
// Returns the command line that prints ssh's configuration for the host without connecting.
std::vector<std::string> PrintConfiguration(const std::vector<std::string>& ssh,
                                            const std::string& target);
// Returns the HostName in the output of the command of PrintConfiguration. Returns "" if the output
// has none.
std::string HostNameIn(std::string_view configuration);

// Returns the `command` for FirstSession, which works in any login shell. The command prints the
// line kShellReady, reads one line from its standard input, and executes this line.
std::string ShellCommand();
inline constexpr std::string_view kShellReady = "muster-shell-ready";
// Returns the line for the standard input of ShellCommand. The caller has quoted `folder` for the
// shell. The shell changes to `folder`, and prints kVersionIs and the version of the program
// `muster` on one line. The shell then replaces itself with `muster run-tasks LAUNCH`.
std::string StartLine(const std::string& folder, const std::string& muster,
                      const std::string& launch);
inline constexpr std::string_view kVersionIs = "muster-version ";

// Returns the error for a failed connection. `message` is the last line that ssh printed. If the
// host refused the connection or did not answer, another attempt may succeed, and the error is
// PeerLost. In all other cases, the error is ConfigurationError.
absl::Status CannotConnect(const std::string& target, std::string_view message);

}  // namespace muster::hosts
