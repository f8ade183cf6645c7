// Runs a cluster to its end. RunLaunch starts the tasks, forwards their output and signals, and
// collects every exit code. It uses one poll loop, the thread of TaskExitNotifier, and those of
// Processes. When it returns, all processes of the cluster have ended.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/launcher/gpus.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/processes.h"
#include "deploy/launcher/task_exit_notifier.h"
#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster::launcher {

struct LaunchRequest {
  ClusterSize size;
  std::string bin_dir;                             // The folder of muster-chief, muster-worker, ...
  std::vector<std::string> job;                    // The arguments --job FILE --set ...
  std::vector<std::string> arguments;              // Additional arguments for every task.
  std::map<std::string, std::string> environment;  // Additional environment of every task.
  std::string program = "muster";  // The name with which the user called this program.
  // The job's model_dir. The logs go to a file per task in its logs/. Empty: no files.
  std::string model_dir;
  // If true, the launch continues if it cannot create the log files, because model_dir may be on
  // other hosts.
  bool logs_optional = false;
  // In the order of PlanCluster. Empty: every task sees the launcher's GPUs.
  GpuPlan gpus;
  LaunchOptions options;
  // Notifies the chief that a task has ended and will not be restarted, so that the chief does not
  // wait for it. Called on the thread of TaskExitNotifier. Null: the chief is not notified.
  std::function<void(const TaskExitNotice&)> tell_chief;
  // Called once with the lead's task, when its address is known and before it starts. May be null.
  std::function<void(const PlannedTask& lead)> planned;
  // Makes the processes of the launch. Null: the launch uses MakeLocalProcesses.
  std::function<std::unique_ptr<Processes>(ProcessOutput& output)> make_processes;
};

// Blocks until the cluster has ended. Prints a report on the console and returns the job's exit
// code. Returns an error if the cluster could not start, after ending the processes that had
// started. REQUIRES: the calling thread is the main thread. SIGINT, SIGTERM and SIGCHLD stay
// blocked in this thread afterwards.
absl::StatusOr<int> RunLaunch(const LaunchRequest& request);

}  // namespace muster::launcher
