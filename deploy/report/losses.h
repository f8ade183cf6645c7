// The losses and restarts of a run on its time axis. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

struct Mark {
  enum class Kind {
    kLoss,     // A member or the chief was lost, and training continued.
    kRestart,  // A new chief process continued the run.
    kEnd,      // A generation ended, and no loss of recovery.json belongs to it.
  };
  Kind kind = Kind::kLoss;
  int64_t step = 0;        // Training continued from the state after this step.
  double wall = 0;         // 0 if unknown.
  bool estimated = false;  // `wall` is from the next recorded step.
  double seconds = -1;     // The cost of the loss in seconds. Negative if unknown.
  std::string text;
};

const char* KindName(Mark::Kind kind);

// Returns the marks in the order of steps. Sources: "recovery" of result.json, the START events of
// train/, and the flight records.
std::vector<Mark> MarksOf(const Run& run);

}  // namespace muster::report
