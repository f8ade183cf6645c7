// A Command is a subcommand of the `muster` command-line tool. Each command has its own file pair,
// deploy/<name>_command.{h,cc}, and muster_main.cc lists it. All calls come from main's thread.
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
  // Adds the subcommand and its options to `muster`, and returns the subcommand. CLI11 writes the
  // options into this object, so the object must outlive the parsing.
  virtual CLI::App* Register(CLI::App& muster) = 0;
  // Runs the command and returns the process's exit code. Prints all output and errors.
  virtual int Run() = 0;
};

// Adds an option that may be repeated and has one value each time: "--set a=1 --set b=2".
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& value_name, const std::string& help);
// Adds --set, which overrides keys of the job file.
CLI::Option* AddSet(CLI::App* app, std::vector<std::string>* overrides);

// Writes a file that the user named, beside `path` first, and renames it, so that a reader never
// sees a part of it. Writes to a device or pipe directly. Returns ConfigurationError with the
// reason.
absl::Status WriteOutputFile(const std::string& path, std::string_view text);

// Prints `muster <name>: <message>` as one line on stderr, after all earlier log lines. Returns the
// status's exit code.
int ReportError(const char* name, const absl::Status& status);

}  // namespace muster
