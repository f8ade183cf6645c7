// The verdict of a job: how and why the job ends. The chief decides the verdict, and every process
// prints it in one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/phase.h"
#include "muster/status.h"

namespace muster {

struct Verdict {
  ExitCode code = ExitCode::kDone;
  std::string task;   // The task that caused the end ("worker:1"). Empty if no single task did.
  std::string host;   // The host of that task. Empty: unknown.
  int64_t step = -1;  // The step of that task. -1: unknown.
  Phase phase = Phase::kStarting;
  std::string message;  // The cause, a text for people.
};

// Returns "worker 1" for "worker:1".
std::string TaskText(std::string_view task);

// Returns a sentence such as "worker 1 on host H (step 12, reduce): its process is gone". Omits
// unknown parts. The file result.json of the job contains the same sentence. Returns "" for a job
// that completed.
std::string Describe(const Verdict& verdict);

// Returns the line that the process of task `self` prints at its end. On the chief and on the task
// that caused the end, the line is "ROOT CAUSE: " and the result of Describe. On other tasks, the
// line is "stopped because of worker 1: its process is gone (host H, step 12, reduce)". After a
// requested stop (ExitCode::kPreempted), the line is the result of Describe on every task. Returns
// "" for a job that completed.
std::string FinalLine(const Verdict& verdict, std::string_view self, bool is_chief);

// Returns OK for a job that completed. Otherwise returns a status with the verdict's code, and
// FinalLine as its message.
absl::Status StatusOf(const Verdict& verdict, std::string_view self, bool is_chief);

}  // namespace muster
