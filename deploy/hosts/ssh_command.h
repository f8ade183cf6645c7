// The command lines of ssh, the lines for the shells of the hosts, and what ssh's messages mean.
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::hosts {

// Splits --ssh, "ssh -p 2222 -F 'my config'", into words. Quotes group a word, and a backslash
// takes the next character as it is. Returns ConfigurationError for an open quote or no word.
absl::StatusOr<std::vector<std::string>> SplitCommand(const std::string& text);

// The first connection to a host. Other sessions to the host go through it, by the socket
// `control`, so that ssh authenticates once.
std::vector<std::string> FirstSession(const std::vector<std::string>& ssh,
                                      const std::string& control, const std::string& target,
                                      const std::string& command);
// Another session, through the first one.
std::vector<std::string> FurtherSession(const std::vector<std::string>& ssh,
                                        const std::string& control, const std::string& target,
                                        const std::string& command);
// Prints ssh's configuration for the host, without a connection.
std::vector<std::string> PrintConfiguration(const std::vector<std::string>& ssh,
                                            const std::string& target);
// Returns the name or address to which ssh connects, from the output of PrintConfiguration. ""
// where there is none.
std::string HostNameIn(std::string_view configuration);

// The command of the first session, for any login shell: prints kShellReady on a line, reads one
// line of its input and runs it.
std::string ShellCommand();
inline constexpr std::string_view kShellReady = "muster-shell-ready";
// The line for that shell: goes to `folder` (text for the shell), prints kVersionIs and the version
// of the program `muster` on a line, and becomes `muster run-tasks LAUNCH`.
std::string StartLine(const std::string& folder, const std::string& muster,
                      const std::string& launch);
inline constexpr std::string_view kVersionIs = "muster-version ";

// The status of a launch that could not connect: PeerLost where another attempt can help (a host
// that refuses or does not answer), else ConfigurationError. `message` is ssh's last line.
absl::Status CannotConnect(const std::string& target, std::string_view message);

}  // namespace muster::hosts
