// The parts that every task makes of its environment and command line before it calls or serves
// another task: cluster, job, planned faults, identity and telemetry. Needs no LibTorch.
#pragma once

#include <memory>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/process/task_process.h"
#include "common/telemetry/task_telemetry.h"

namespace muster {

struct TaskSetup {
  ClusterConfig cluster;
  Job job;                         // The job of the command line.
  std::unique_ptr<Faults> faults;  // Null if the command line has no --fault (docs/faults.md).
  std::unique_ptr<TaskTelemetry> telemetry;

  // Reads TF_CONFIG and the job file. Before it reads the job file, it names this process in the
  // log, starts `signals`, and checks the limit on open files and that the program for tasks of
  // type `binary` may run this task. If the job file is invalid, `job` still has its security
  // options (common/job/job_security.h). Called once, on main's thread.
  absl::Status Read(const TaskArguments& arguments, TaskType binary, StopSignals* signals);
  // Sets cluster.identity, and starts `telemetry`, which opens the port of /metrics if the job has
  // one. Called when the role has completed and checked `job`.
  absl::Status Start();

  // Returns the status of a process that ends with `code` because of its own failure `why`. The
  // process must print the message last.
  absl::Status OwnFailure(const absl::Status& why, ExitCode code) const;
};

}  // namespace muster
