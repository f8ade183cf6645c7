// muster-tool: the commands of `muster` that need LibTorch. `muster` starts it and forwards its
// arguments. A new command needs a line in Commands(), and one in deploy/muster_main.cc.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chief/model_dir/resume.h"
#include "common/base/logging.h"
#include "common/process/command_line.h"
#include "common/process/task_process.h"
#include "deploy/command.h"
#include "deploy/tool/check/check.h"
#include "deploy/tool/data/data.h"
#include "deploy/tool/evaluate.h"
#include "deploy/tool/export.h"
#include "deploy/tool/predict.h"
#include "examples/programs.h"
#include "muster/version.h"

namespace muster {
namespace {

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeCheckCommand({FindProgram, chief::FindStartState}));
  commands.push_back(MakeDataCommand());
  commands.push_back(MakeEvaluateCommand(FindProgram));
  commands.push_back(MakeExportCommand());
  commands.push_back(MakePredictCommand(FindProgram));
  return commands;
}

int Main(int argc, char** argv) {
  InitLogging("");
  spdlog::default_logger()->set_level(spdlog::level::warn);
  CLI::App app("Muster's commands that need LibTorch; start them as `muster COMMAND`", "muster");
  app.set_version_flag("--version", MUSTER_VERSION);
  app.require_subcommand(1);
  const std::vector<std::unique_ptr<Command>> commands = Commands();
  std::vector<std::pair<CLI::App*, Command*>> registered;
  for (const auto& command : commands)
    registered.emplace_back(command->Register(app), command.get());
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;
  for (const auto& [subcommand, command] : registered) {
    // Static destructors of plugins and LibTorch may wait for threads that still run.
    if (subcommand->parsed()) LeaveProcess(ExitCodeFromInt(command->Run()));
  }
  return static_cast<int>(ExitCode::kConfiguration);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
