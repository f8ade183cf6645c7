// Runs a local cluster to its end: starts the tasks, passes their output on, forwards signals,
// collects every exit code. One thread, one poll loop; nothing is left running when it returns.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "deploy/launcher/gpus.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/verdict.h"
#include "muster/status.h"

namespace muster {

struct LaunchRequest {
  ClusterSize size;
  std::string bin_dir;                 // where muster-chief, muster-worker, ... are
  std::vector<std::string> job;        // --job FILE --set ...
  std::vector<std::string> arguments;  // of every task beside these
  std::string program = "muster";      // how this program was called
  std::string model_dir;  // the job's; its logs/ gets a file for each task. Empty: no files
  GpuPlan gpus;  // by task, as PlanCluster orders them; empty: all see what the launcher sees
  LaunchOptions options;
  // Tells the chief at `address` that `task` ("worker:1") has ended and is not started again, so
  // that it waits for nobody in vain. Null: nobody tells it.
  std::function<void(const std::string& address, const std::string& task, const std::string& why)>
      tell_chief;
};

// Returns the job's exit code, having said on the console how it went. An error is one that kept
// the cluster from starting; what had started is gone again. REQUIRES: the calling thread is the
// process's main thread, which from then on has SIGINT, SIGTERM and SIGCHLD blocked.
absl::StatusOr<int> RunLaunch(const LaunchRequest& request);

}  // namespace muster
