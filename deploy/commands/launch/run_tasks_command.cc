#include "deploy/commands/launch/run_tasks_command.h"

#include <CLI/CLI.hpp>
#include <string>

#include "deploy/hosts/run_tasks.h"
#include "deploy/own_folder.h"

namespace muster {
namespace {

class RunTasksCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "run-tasks", "Run tasks on this host for `muster launch --hosts`, which starts this");
    app->group("");  // Hides the command in --help.
    app->add_option("LAUNCH", launch_, "The name of the launch")->required();
    return app;
  }

  int Run() override {
    FindTorchByEnvironment();
    const absl::StatusOr<int> code = hosts::RunTasks(launch_);
    return code.ok() ? *code : ReportStatus("run-tasks", code.status());
  }

 private:
  std::string launch_;
};

}  // namespace

std::unique_ptr<Command> MakeRunTasksCommand() { return std::make_unique<RunTasksCommand>(); }

}  // namespace muster
