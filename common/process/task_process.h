// The common parts of every task's main: the command line, the last log line, and the exit. Needs
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
  std::string about;              // First line of --help.
  std::string on_signal;          // `what` of StopSignals.
  std::function<void()> unheard;  // `unheard` of StopSignals.
  std::string termination_log;
};

// Runs a task's main. `body` does everything between the command line and the last log line.
// Returns an exit code if the command line is wrong or only asks for help or the version. Otherwise
// ends the process with the exit code of the body's result.
int RunTaskMain(int argc, char** argv, const TaskMain& main,
                const std::function<absl::Status(const TaskArguments&, StopSignals*)>& body);

// Returns the faults that --fault plans for this task, or null if the command line has none. A
// process alone is worker 0.
absl::StatusOr<std::unique_ptr<Faults>> MakeFaults(const TaskArguments& arguments,
                                                   const ClusterConfig& cluster);

// Refuses a limit on open files that no process can start with. Logs a warning if the limit is too
// low for the cluster.
absl::Status CheckDescriptors(const ClusterConfig& cluster);

// Sets the mode of the job's files in this process: security.file_mode, which LoadJob has checked.
void UseFileMode(const Job& job);

// Writes the process's last line to the log and to its container's termination message.
void SayLast(const absl::Status& result, const std::string& termination_log);

// Refuses options of the job file that this version does not support in any role.
absl::Status CheckSupported(const Job& job);

// Writes the last line and ends the process, from a thread other than main's.
[[noreturn]] void EndNow(const std::string& line, const std::string& termination_log,
                         ExitCode code);

// Ends the process at once. Static destructors of libraries might wait for threads that are still
// running.
[[noreturn]] void LeaveProcess(ExitCode code);

}  // namespace muster
