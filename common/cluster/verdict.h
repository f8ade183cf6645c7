// The verdict of a job: how and why it ends. The chief decides it, and every process prints it in
// one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/phase.h"
#include "muster/status.h"

namespace muster {

struct Verdict {
  ExitCode code = ExitCode::kDone;
  std::string task;   // The task that caused the end, "worker:1". Empty: none in particular.
  std::string host;   // The host of that task. Empty: unknown.
  int64_t step = -1;  // The step of that task. -1: unknown.
  Phase phase = Phase::kStarting;
  std::string message;  // The cause, for a person.
};

// Returns "worker 1" for "worker:1".
std::string TaskText(std::string_view task);

// Returns "worker 1 on host H (step 12, reduce): its process is gone". Unknown parts are left out.
// The same sentence goes to result.json. Returns "" for a job that completed.
std::string Describe(const Verdict& verdict);

// Returns the line that the process of task `self` prints at its end. It is "ROOT CAUSE: <story>"
// on the chief and on the task that caused the end. On other tasks it is "stopped because of worker
// 1: its process is gone (host H, step 12, reduce)". It is "" for a job that completed.
std::string FinalLine(const Verdict& verdict, std::string_view self, bool is_chief);

// Returns OK, or a status with the verdict's code and FinalLine as its message.
absl::Status StatusOf(const Verdict& verdict, std::string_view self, bool is_chief);

}  // namespace muster
