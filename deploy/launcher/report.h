// Formats the final report of `muster launch`. Report is a pure function.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/verdict.h"
#include "muster/json.h"

namespace muster::launcher {

struct LaunchOutcome {
  LaunchVerdict verdict;
  Duration elapsed{};
  std::string model_dir;   // The job's model_dir. Empty: the job wrote no files.
  std::string root_cause;  // The line "ROOT CAUSE ..." of the lead (plan.h), or "".
  Json result;             // The content of this run's result.json, or null.
  // The name with which the user called this program, and the arguments that select the job:
  // "--job", FILE, "--set", ... The report uses both to suggest the next commands.
  std::string program = "muster";
  std::vector<std::string> job;
  bool logs = true;  // True if the log files were written.
};

std::vector<std::string> Report(const LaunchState& state, const LaunchOutcome& outcome);

}  // namespace muster::launcher
