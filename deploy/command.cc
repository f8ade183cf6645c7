#include "deploy/command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/base/log_writer.h"

namespace muster {

CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& value_name, const std::string& help) {
  return app->add_option(name, *values, help)
      ->type_name(value_name)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* AddSet(CLI::App* app, std::vector<std::string>* overrides) {
  return AddRepeated(app, "--set", overrides, "KEY=VALUE",
                     "Override a key of the job, dotted; may be repeated");
}

int ReportError(const char* name, const absl::Status& status) {
  FlushLog();  // The log has its own thread, and the error must come after earlier log lines.
  fmt::print(stderr, "muster {}: {}\n", name, Message(status));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace muster
