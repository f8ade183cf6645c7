// Parses the command line of a program.
#pragma once

#include <optional>

namespace CLI {
class App;
}  // namespace CLI

namespace muster {

// Parses the command line into the options of `app`. If the command line is invalid or requests
// help or the version, prints what CLI11 says of it and returns the exit code of the process.
// Otherwise returns nullopt.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

}  // namespace muster
