// One subcommand of `muster`, the people's command. Each lives in a file pair of its own,
// deploy/<name>_command.{h,cc}, and is listed once in muster_main.cc. All calls come from main's
// thread.
#pragma once

#include <string>
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
  // Adds the subcommand with its options to `muster`. CLI11 writes the options into this object,
  // which outlives the parsing. Returns the subcommand, by which main sees whether it was chosen.
  virtual CLI::App* Register(CLI::App& muster) = 0;
  // Runs it and returns the process's exit code, having printed what there is to say itself.
  virtual int Run() = 0;
};

// An option that may be given again, one value at a time: "--set a=1 --set b=2".
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& value_name, const std::string& help);
// --set, which overrides keys of the job file.
CLI::Option* AddSet(CLI::App* app, std::vector<std::string>* overrides);

// Prints `muster <name>: <message>` as one line on stderr, after what was logged before, and
// returns the status's exit code.
int ReportError(const char* name, const absl::Status& status);

}  // namespace muster
