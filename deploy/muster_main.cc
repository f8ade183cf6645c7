// `muster`: the people's command. A new subcommand is one line in Commands().
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "deploy/cluster_command.h"
#include "deploy/command.h"
#include "deploy/launch_command.h"

namespace muster {
namespace {

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeClusterCommand());
  commands.push_back(MakeLaunchCommand());
  return commands;
}

int Main(int argc, char** argv) {
  InitLogging("");
  CLI::App app("Muster: training on TF_CONFIG clusters", "muster");
  app.require_subcommand(1);
  const std::vector<std::unique_ptr<Command>> commands = Commands();
  std::vector<std::pair<CLI::App*, Command*>> registered;
  for (const auto& command : commands) {
    registered.emplace_back(command->Register(app), command.get());
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help is an "error" with code 0; every real one is a mistake in the command line.
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kConfiguration);
  }
  for (const auto& [subcommand, command] : registered) {
    if (subcommand->parsed()) return command->Run();
  }
  return static_cast<int>(ExitCode::kConfiguration);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
