#include "deploy/commands/tool_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

#include "deploy/own_folder.h"

namespace muster {
namespace {

class ToolCommand : public Command {
 public:
  ToolCommand(const std::string& name, const std::string& about, const std::string& binary)
      : name_(name), about_(about), binary_(binary) {}

  CLI::App* Register(CLI::App& muster) override {
    app_ = muster.add_subcommand(name_, about_);
    app_->set_help_flag();  // The other binary handles --help.
    app_->prefix_command();
    return app_;
  }

  int Run() override {
    const absl::StatusOr<std::string> folder = OwnFolder();
    if (!folder.ok()) return ReportStatus(name_.c_str(), folder.status());
    const std::string tool = fmt::format("{}/{}", *folder, binary_);
    std::vector<std::string> arguments = app_->remaining();
    arguments.insert(arguments.begin(), {tool, name_});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    FindTorchByEnvironment();
    execv(tool.c_str(), pointers.data());
    return ReportStatus(name_.c_str(),
                        ConfigurationError(fmt::format("cannot start {}: {}; install it beside "
                                                       "this binary, or build it with `make "
                                                       "programs`",
                                                       tool, std::strerror(errno))));
  }

 private:
  const std::string name_, about_, binary_;
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakeToolCommand(const std::string& name, const std::string& about,
                                         const std::string& binary) {
  return std::make_unique<ToolCommand>(name, about, binary);
}

}  // namespace muster
