// Lists the lost processes and the restarts of a run, for the page of `muster report`. A member is
// the chief or a worker. A generation is a period of training with fixed members. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/report/run.h"

namespace muster::report {

struct Mark {
  enum class Kind {
    kLoss,     // A process was lost, and training continued.
    kRestart,  // A new chief process continued the run.
    kEnd,      // A generation ended, and no loss of a process was recorded.
  };
  Kind kind = Kind::kLoss;
  int64_t step = 0;        // Training continued after this step. For kEnd: the last recorded step.
  double wall = 0;         // The time of the event in seconds since 1970. 0 if unknown.
  bool estimated = false;  // True if `wall` is computed from the time of a later step.
  double seconds = -1;     // The lost training time in seconds. Negative if unknown.
  std::string text;
};

const char* KindName(Mark::Kind kind);

// Returns the marks in the order of steps. The sources are Run::recovery, the START events in the
// TensorBoard folder "train", and the flight records (docs/explain.md).
std::vector<Mark> MarksOf(const Run& run);

}  // namespace muster::report
