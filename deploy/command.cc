#include "deploy/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

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

absl::Status WriteOutputFile(const std::string& path, std::string_view text) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return ConfigurationError(fmt::format("'{}' is a folder: name a file with -o", path));
  const bool special =
      std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
  const std::string written = special ? path : path + ".part";
  errno = 0;
  std::FILE* const file = std::fopen(written.c_str(), "wbe");
  bool done = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) done = std::fclose(file) == 0 && done;
  if (done && !special) done = std::rename(written.c_str(), path.c_str()) == 0;
  if (done) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  if (!special) std::filesystem::remove(written, error);
  return ConfigurationError(fmt::format("cannot write '{}': {}", path, why));
}

int ReportStatus(const char* name, const absl::Status& status) {
  if (status.ok()) return static_cast<int>(ExitCode::kDone);
  FlushLog();  // The log has its own thread, and the error must come after earlier log lines.
  fmt::print(stderr, "muster {}: {}\n", name, Message(status));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace muster
