// The parts of main that all tasks share: the command line, the last log line, and the exit. Needs
// no LibTorch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
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
  std::string termination_log;
};

// Parses the command line, calls `body`, and logs the last line. Then ends the process with the
// exit code of the body's result. Returns an exit code only if the command line is invalid or
// requests help or the version.
int RunTaskMain(int argc, char** argv, const TaskMain& main,
                const std::function<absl::Status(const TaskArguments&, StopSignals*)>& body);

// Returns the faults of --fault for this task, or null if the command line has no --fault. A
// process without a cluster is worker 0.
absl::StatusOr<std::unique_ptr<Faults>> MakeFaults(const TaskArguments& arguments,
                                                   const ClusterConfig& cluster);

// Raises the limit on open files. Returns an error if it is still too low for a single process.
// Logs a warning if it is too low for the cluster.
absl::Status CheckDescriptors(const ClusterConfig& cluster);

// Sets the mode of files that this process creates to the job's security.file_mode. REQUIRES:
// LoadJob has checked the job.
void UseFileMode(const Job& job);

// Logs the process's last line, and writes it to the file of the container's termination message.
void ReportResult(const absl::Status& result, const std::string& termination_log);

// Returns an error if the job file has options that no role of this version supports.
absl::Status CheckSupported(const Job& job);

// Writes the last line and ends the process. May be called on any thread.
[[noreturn]] void EndNow(const std::string& line, const std::string& termination_log,
                         ExitCode code);

// Ends the process at once, without static destructors. Static destructors of libraries might wait
// for threads that are still running.
[[noreturn]] void LeaveProcess(ExitCode code);

}  // namespace muster
