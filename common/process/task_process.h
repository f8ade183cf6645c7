// The parts of main that all tasks share: the command line, the last log line, and the exit. The
// last log line of a process says how and why it ends. Needs no LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults/faults.h"
#include "common/job/job.h"
#include "common/process/stop_signals.h"
#include "muster/status.h"

namespace muster {

struct TaskArguments {
  std::string job;                     // --job FILE
  std::vector<std::string> overrides;  // --set KEY=VALUE, in order.
  std::vector<Fault> faults;           // --fault, in order.
};

struct TaskMain {
  std::string about;                   // The first line of --help.
  std::string on_signal;               // The argument `what` of StopSignals.
  std::function<void()> on_unhandled;  // The argument `on_unhandled` of StopSignals.
  std::string termination_log;         // See ReportResult.
};

// Parses the command line, calls `body`, passes its result to ReportResult, and ends the process
// with the exit code of the result. Returns only if the command line is invalid or requests help or
// the version. The return value is then the exit code.
int RunTaskMain(int argc, char** argv, const TaskMain& main,
                const std::function<absl::Status(const TaskArguments&, StopSignals*)>& body);

// Sets the access mode of files that this process creates to the job's security.file_mode.
// REQUIRES: LoadJob has checked the job.
void UseFileMode(const Job& job);

// If `result` is not OK, logs its message as the last line of the process, and writes the message
// to the file `termination_log`. Kubernetes reads the container's termination message from this
// file.
void ReportResult(const absl::Status& result, const std::string& termination_log);

// Returns an error if the job has a combination of options that this version does not support.
absl::Status CheckSupported(const Job& job);

// Logs the last line `line`, writes it to `termination_log`, and ends the process. Thread-safe.
[[noreturn]] void EndNow(const std::string& line, const std::string& termination_log,
                         ExitCode code);

// Flushes the log and ends the process without calling static destructors. Static destructors of
// libraries might wait for threads that are still running.
[[noreturn]] void LeaveProcess(ExitCode code);

}  // namespace muster
