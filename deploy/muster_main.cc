// The `muster` command-line tool. A new subcommand is one line in Commands().
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/process/command_line.h"
#include "deploy/command.h"
#include "deploy/commands/cluster_command.h"
#include "deploy/commands/inspection/checkpoint_command.h"
#include "deploy/commands/inspection/explain_command.h"
#include "deploy/commands/inspection/report_command.h"
#include "deploy/commands/inspection/status_command.h"
#include "deploy/commands/inspection/trace_command.h"
#include "deploy/commands/key_command.h"
#include "deploy/commands/launch/launch_command.h"
#include "deploy/commands/launch/run_tasks_command.h"
#include "deploy/commands/manifest_command.h"
#include "deploy/commands/new_command.h"
#include "deploy/commands/preflight_command.h"
#include "deploy/commands/tool_command.h"
#include "muster/json.h"
#include "muster/version.h"

namespace muster {
namespace {

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeToolCommand(
      "bundle", "Write programs and libraries as an archive, for hosts where nothing is installed",
      "muster-bundle"));
  commands.push_back(MakeToolCommand(
      "check", "Run one batch of each split of a job on the CPU, before a cluster is started"));
  commands.push_back(MakeCheckpointCommand());
  commands.push_back(MakeClusterCommand());
  commands.push_back(MakeToolCommand("data", "Write files of examples in another format"));
  commands.push_back(MakeToolCommand("evaluate", "Print the metrics of a checkpoint"));
  commands.push_back(MakeExplainCommand());
  commands.push_back(MakeToolCommand(
      "export", "Write a checkpoint as one file: weights, or a trained exported program"));
  commands.push_back(MakeKeyCommand());
  commands.push_back(MakeLaunchCommand());
  commands.push_back(MakeManifestCommand());
  commands.push_back(MakeNewCommand());
  commands.push_back(MakeToolCommand("predict", "Write the outputs of a checkpoint for an input"));
  commands.push_back(MakePreflightCommand());
  commands.push_back(MakeStatusCommand());
  commands.push_back(MakeTraceCommand());
  commands.push_back(MakeRunTasksCommand());
  commands.push_back(MakeReportCommand());
  return commands;
}

// Returns the first word of the command line if it is not a command, for a better message than
// CLI11's.
std::string UnknownCommand(int argc, char** argv, const std::vector<std::string>& known) {
  const std::string word = argc > 1 ? argv[1] : "";
  const bool option = word.starts_with('-');
  return option || std::find(known.begin(), known.end(), word) != known.end() ? "" : word;
}

int Main(int argc, char** argv) {
  InitLogging("");
  CLI::App app("Muster: training on TF_CONFIG clusters", "muster");
  app.set_version_flag("--version", MUSTER_VERSION);
  app.require_subcommand(1);
  const std::vector<std::unique_ptr<Command>> commands = Commands();
  std::vector<std::pair<CLI::App*, Command*>> registered;
  std::vector<std::string> names;
  for (const auto& command : commands) {
    registered.emplace_back(command->Register(app), command.get());
    names.push_back(registered.back().first->get_name());
  }
  if (const std::string word = UnknownCommand(argc, argv, names); !word.empty()) {
    const std::string nearest = Nearest(word, names);
    fmt::print(stderr, "muster: unknown command \"{}\"{}\n", word,
               nearest.empty() ? fmt::format("; commands: {}", fmt::join(names, ", "))
                               : fmt::format(", did you mean \"{}\"?", nearest));
    return static_cast<int>(ExitCode::kConfiguration);
  }
  if (argc <= 1) {
    fmt::print(stderr, "{}", app.help());
    return static_cast<int>(ExitCode::kConfiguration);
  }
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;
  for (const auto& [subcommand, command] : registered) {
    if (subcommand->parsed()) return command->Run();
  }
  return static_cast<int>(ExitCode::kConfiguration);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
