// Runs a local cluster to its end: starts the tasks, passes their output on, forwards signals,
// collects every exit code. One poll loop, and a thread that tells the chief of deaths; nothing is
// left running when it returns.
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
  std::string bin_dir;                             // where muster-chief, muster-worker, ... are
  std::vector<std::string> job;                    // --job FILE --set ...
  std::vector<std::string> arguments;              // of every task beside these
  std::map<std::string, std::string> environment;  // of every task besides
  std::string program = "muster";                  // how this program was called
  std::string model_dir;  // the job's; its logs/ gets a file for each task. Empty: no files
  GpuPlan gpus;  // by task, as PlanCluster orders them; empty: all see what the launcher sees
  LaunchOptions options;
  // Tells the chief that a task has ended and is not started again, so that it does not wait for
  // it. Called on another thread (DeathNotices). Null: the chief is not told.
  std::function<void(const DeathNotice&)> tell_chief;
};

// Returns the job's exit code, having said on the console how it went. An error is one that kept
// the cluster from starting; what had started is gone again. REQUIRES: the calling thread is the
// process's main thread, which from then on has SIGINT, SIGTERM and SIGCHLD blocked.
absl::StatusOr<int> RunLaunch(const LaunchRequest& request);

}  // namespace muster
