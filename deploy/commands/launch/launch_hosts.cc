#include "deploy/commands/launch/launch_hosts.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <utility>

#include "deploy/command.h"
#include "deploy/hosts/ssh_command.h"

namespace muster {
namespace {

// Parses "NAME=VALUE". "NAME" alone has the value in this process's environment.
absl::StatusOr<std::pair<std::string, std::string>> Variable(const std::string& text) {
  const std::string name = text.substr(0, text.find('='));
  if (name.empty())
    return ConfigurationError(fmt::format("--env is \"{}\", which names no variable", text));
  if (name.size() < text.size()) return std::pair(name, text.substr(name.size() + 1));
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    return ConfigurationError(
        fmt::format("--env is {}, which is not set here: give its value, {}=VALUE", name, name));
  return std::pair<std::string, std::string>(name, value);
}

}  // namespace

void LaunchHosts::Register(CLI::App* app) {
  app->add_option("--hosts", hosts_,
                  "Start the tasks on these hosts by ssh: a:4,b:4 with the number of members of "
                  "each, or a file with lines such as \"a slots=4\"")
      ->type_name("HOSTS");
  with_hosts_ = {
      app->add_option("--ssh", ssh_,
                      "The command that connects, for example \"ssh -p 2222 -F FILE\"")
          ->type_name("COMMAND")
          ->capture_default_str(),
      AddRepeated(app, "--copy", &copy_, "PATH",
                  "Copy this file or folder below the current one to each host first; may be "
                  "repeated"),
      app->add_option("--remote-folder", folder_,
                      "The folder on the hosts in which the tasks start")
          ->type_name("DIR")
          ->default_str("named by the content of --copy, else the current one"),
      AddRepeated(app, "--env", &environment_, "VARIABLE",
                  "A variable of the environment of the tasks, NAME=VALUE, or NAME with the value "
                  "that it has here; may be repeated")};
}

absl::StatusOr<hosts::HostsRequest> LaunchHosts::Request() const {
  for (const CLI::Option* option : with_hosts_) {
    if (!used() && option->count() > 0)
      return ConfigurationError(fmt::format(
          "{} is given without --hosts, which starts tasks on other hosts", option->get_name()));
  }
  hosts::HostsRequest request;
  if (!used()) return request;
  MUSTER_ASSIGN_OR_RETURN(request.hosts, hosts::ReadHostList(hosts_));
  MUSTER_ASSIGN_OR_RETURN(request.ssh, hosts::SplitCommand(ssh_));
  for (const std::string& text : environment_) {
    MUSTER_ASSIGN_OR_RETURN(auto variable, Variable(text));
    request.environment.insert(std::move(variable));
  }
  // The folder is quoted for the host's shell, so the shell does not expand '~'.
  if (folder_.starts_with('~'))
    return ConfigurationError(
        fmt::format("--remote-folder is {}: give an absolute path, or one relative to your home "
                    "folder on the hosts, without ~",
                    folder_));
  request.copy = copy_;
  request.folder = folder_;
  return request;
}

}  // namespace muster
