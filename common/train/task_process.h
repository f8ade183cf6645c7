// What the main of every task does before and after its work: the command line, the last words, the
// way out. Needs no LibTorch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/train/job.h"
#include "common/train/stop_signals.h"
#include "muster/status.h"

namespace muster {

struct TaskArguments {
  std::string job;                     // --job FILE
  std::vector<std::string> overrides;  // --set KEY=VALUE, in order
  std::vector<Fault> faults;           // --fault, in order
};

struct TaskMain {
  std::string about;              // the first line of --help
  std::string on_signal;          // StopSignals' `what`
  std::function<void()> unheard;  // StopSignals'
  std::string termination_log;
};

// The main of a task: its body is all between the command line and the last words. Returns an exit
// code where the command line asks for nothing more (help, the version) or is wrong; else the
// process ends in here, with the exit code of the body's result.
int RunTaskMain(int argc, char** argv, const TaskMain& main,
                const std::function<absl::Status(const TaskArguments&, StopSignals*)>& body);

// What --fault asks of this task; null: nothing was asked of anybody. A process alone is worker 0.
absl::StatusOr<std::unique_ptr<Faults>> MakeFaults(const TaskArguments& arguments,
                                                   const ClusterConfig& cluster);

// Refuses a limit on open files that no process can begin with, and logs it where this one may open
// fewer than its cluster takes.
absl::Status CheckDescriptors(const ClusterConfig& cluster);

// How this process makes the job's files from now on: security.file_mode, checked by LoadJob.
void UseFileMode(const Job& job);

// The process's last line, in the log and as its container's termination message.
void SayLast(const absl::Status& result, const std::string& termination_log);

// What the job file knows and this version does not do, in any role, is refused, not ignored.
absl::Status CheckSupported(const Job& job);

// The last line and the end, from another thread than main's.
[[noreturn]] void EndNow(const std::string& line, const std::string& termination_log,
                         ExitCode code);

// Ends the process at once: static destructors of libraries may wait for threads that are still at
// work.
[[noreturn]] void LeaveProcess(ExitCode code);

}  // namespace muster
