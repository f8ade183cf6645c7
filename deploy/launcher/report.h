// The launcher's final report. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/verdict.h"
#include "muster/json.h"

namespace muster {

struct LaunchOutcome {
  LaunchVerdict verdict;
  Duration elapsed{};
  std::string model_dir;   // Empty: nothing was written.
  std::string root_cause;  // The lead's ROOT CAUSE line, empty if it wrote none.
  Json result;             // result.json of this run, null if there is none.
  // The name by which this program was called, and the arguments that select the job: "--job",
  // FILE, "--set", ... Used to suggest the next commands.
  std::string program = "muster";
  std::vector<std::string> job;
};

std::vector<std::string> Report(const LaunchState& state, const LaunchOutcome& outcome);

}  // namespace muster
