#include "common/process/command_line.h"

#include <CLI/CLI.hpp>

#include "muster/status.h"

namespace muster {

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    // CLI11 reports --help as an error with code 0. Other errors are mistakes in the command line.
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kConfiguration);
  }
}

}  // namespace muster
