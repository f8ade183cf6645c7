// A Command is a subcommand of the `muster` command-line tool. Each command has its own files,
// deploy/commands/<name>_command.h and .cc, and an entry in muster_main.cc. All functions are
// called on the main thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace muster {

class Command {
 public:
  virtual ~Command() = default;
  // Adds the subcommand and its options to `muster`, and returns the subcommand. CLI11 later
  // writes the parsed options into this object. The object must therefore outlive the
  // parsing.
  virtual CLI::App* Register(CLI::App& muster) = 0;
  // Runs the command and returns the process's exit code. Prints all output and errors.
  virtual int Run() = 0;
};

// Adds an option that may be repeated. Each occurrence has one value: "--set a=1 --set b=2".
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& value_name, const std::string& help);
// Adds --set, which overrides keys of the job file.
CLI::Option* AddSet(CLI::App* app, std::vector<std::string>* overrides);

// Writes `text` to the file `path`, which the user has named. First writes to `path`.part and then
// renames that file, so that readers never see an incomplete file. If `path` is a device or pipe,
// writes directly. On failure, returns a ConfigurationError (muster/status.h) with the reason.
absl::Status WriteOutputFile(const std::string& path, std::string_view text);

// If `status` is an error, prints `muster <name>: <message>` as one line on stderr, after all
// earlier log lines. Returns the status's exit code.
int ReportStatus(const char* name, const absl::Status& status);

}  // namespace muster
