// Runs a local cluster to its end. It starts the tasks, forwards their output and signals, and
// collects every exit code. It uses one poll loop, and a thread that notifies the chief of deaths.
// No process is left when it returns.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "deploy/launcher/death_notices.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster {

struct LaunchRequest {
  ClusterSize size;
  std::string bin_dir;                             // The folder of muster-chief, muster-worker, ...
  std::vector<std::string> job;                    // --job FILE --set ...
  std::vector<std::string> arguments;              // Additional arguments of every task.
  std::map<std::string, std::string> environment;  // Additional environment of every task.
  std::string program = "muster";                  // The name by which this program was called.
  std::string model_dir;  // The job's model_dir. Its logs/ gets a file per task. Empty: no files.
  // By task, in the order of PlanCluster. Empty: every task sees what the launcher sees.
  GpuPlan gpus;
  LaunchOptions options;
  // Notifies the chief that a task has ended and will not be started again, so that it does not
  // wait for it. Called on another thread (DeathNotices). Null: the chief is not notified.
  std::function<void(const DeathNotice&)> tell_chief;
};

// Returns the job's exit code, after printing a report on the console. An error means that the
// cluster could not start. Processes that had started are ended. REQUIRES: the calling thread is
// the process's main thread. SIGINT, SIGTERM and SIGCHLD stay blocked in it afterwards.
absl::StatusOr<int> RunLaunch(const LaunchRequest& request);

}  // namespace muster
