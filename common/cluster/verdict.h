// How a job ends: one verdict, decided by the chief, told by every process in one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/phase.h"
#include "muster/status.h"

namespace muster {

struct Verdict {
  ExitCode code = ExitCode::kDone;
  std::string task;   // who caused it, "worker:1"; empty: nobody in particular
  std::string host;   // where that task ran; empty: not known
  int64_t step = -1;  // under way there; -1: not known
  Phase phase = Phase::kStarting;
  std::string message;  // what happened, for a person
};

// "worker 1" for "worker:1".
std::string TaskText(std::string_view task);

// "worker 1 on host H (step 12, reduce): its process is gone". What is not known is left out; the
// same sentence goes to result.json. "" for a job that completed.
std::string Story(const Verdict& verdict);

// The one line that the process of task `self` prints at its end: "ROOT CAUSE: <story>" on the
// chief and on the task that caused it, else "stopped because of worker 1: its process is gone
// (host H, step 12, reduce)". "" for a job that completed.
std::string FinalLine(const Verdict& verdict, std::string_view self, bool is_chief);

// OK, or the verdict's status with that line for a message.
absl::Status StatusOf(const Verdict& verdict, std::string_view self, bool is_chief);

}  // namespace muster
