// What the launcher says at the end. Pure.
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
  std::string model_dir;   // empty: nothing was written
  std::string root_cause;  // the lead's ROOT CAUSE line, empty if it wrote none
  Json result;             // result.json of this run, null if there is none
  // How this program was called, and what names the job: "--job", FILE, "--set", ... For what to
  // type next.
  std::string program = "muster";
  std::vector<std::string> job;
};

std::vector<std::string> Report(const LaunchState& state, const LaunchOutcome& outcome);

}  // namespace muster
