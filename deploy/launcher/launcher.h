// Runs the cluster of `muster launch` to its end. A cluster is a set of tasks, which are processes
// of a job: chief, workers, ps tasks and evaluator. RunLaunch starts the tasks, forwards their
// output to the console, forwards signals to the tasks, and collects every exit code. RunLaunch
// runs a poll loop on the calling thread. TaskExitNotifier and Processes may start other threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/launcher/gpus.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/processes/processes.h"
#include "deploy/launcher/task_exit_notifier.h"
#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster::launcher {

struct LaunchRequest {
  ClusterSize size;
  std::string bin_dir;                 // The folder with muster-chief, muster-worker, ...
  std::vector<std::string> job;        // The arguments "--job", FILE, "--set", ...
  std::vector<std::string> arguments;  // Additional arguments for every task.
  std::map<std::string, std::string> environment;  // Variables to add for every task.
  std::string program = "muster";  // The name with which the user called this program.
  // The job's model_dir. Each task has a log file in the folder logs/ of model_dir. Empty: there
  // are no log files.
  std::string model_dir;
  // If true, RunLaunch continues without log files if they cannot be created. True for launches on
  // other hosts, because model_dir may not exist on this host.
  bool logs_optional = false;
  // The GPUs of the tasks, in the order of PlanCluster (plan.h). Empty: every task sees the
  // launcher's GPUs.
  GpuPlan gpus;
  LaunchOptions options;
  // Tells the chief that a task has ended and will not be restarted. Without this notice, the chief
  // would wait for the task. Called on the thread of TaskExitNotifier. Null: the chief gets no
  // notice.
  std::function<void(const TaskExitNotice&)> tell_chief;
  // Called once with the lead (plan.h), after its address has been chosen and before any task
  // starts. May be null.
  std::function<void(const PlannedTask& lead)> planned;
  // Makes the object that starts and watches the processes. Null: RunLaunch uses
  // MakeLocalProcesses.
  std::function<std::unique_ptr<Processes>(ProcessOutput& output)> make_processes;
};

// Blocks until all processes of the cluster have ended. Prints a report on the console and returns
// the job's exit code. If the cluster could not start, ends the started processes and returns an
// error. The signals of SignalQueue (processes/signals.h) remain blocked in the calling thread.
// REQUIRES: the calling thread is the main thread.
absl::StatusOr<int> RunLaunch(const LaunchRequest& request);

}  // namespace muster::launcher
