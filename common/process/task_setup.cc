#include "common/process/task_setup.h"

#include "common/base/files/descriptors.h"
#include "common/base/logging.h"
#include "common/base/process/fatal.h"
#include "common/base/process/restarts.h"
#include "common/cluster/verdict.h"
#include "common/job/job_security.h"
#include "common/process/task_identity.h"
#include "common/rpc/host.h"

namespace muster {
namespace {

// In a process without a cluster, the task is worker 0.
absl::StatusOr<std::unique_ptr<Faults>> MakeFaults(const TaskArguments& arguments,
                                                   const ClusterConfig& cluster) {
  if (arguments.faults.empty()) return nullptr;
  std::string self = "worker:0";
  std::vector<std::string> tasks = {self};
  if (!cluster.local()) {
    self = cluster.task->ToString();
    tasks = {"evaluator:0"};  // Also allowed if the cluster does not list an evaluator.
    for (const TaskId& task : cluster.cluster.Tasks()) {
      if (task.type != TaskType::kEvaluator) tasks.push_back(task.ToString());
    }
  }
  MUSTER_ASSIGN_OR_RETURN(std::vector<Fault> mine, FaultsOf(self, arguments.faults, tasks));
  if (!mine.empty())
    LogWarning("--fault has {} fault{} for this process", mine.size(), mine.size() == 1 ? "" : "s");
  return std::make_unique<Faults>(std::move(mine), Restarts());
}

// Raises this process's limit on open files as far as possible. Returns an error if the limit is
// too low for this process. Logs a warning if the process may need more files in a cluster of this
// size.
absl::Status CheckDescriptors(const ClusterConfig& cluster) {
  const int64_t limit = RaiseDescriptorLimit();
  const int members = cluster.world_size().value_or(1);
  const bool is_chief = cluster.role() == TaskType::kChief;
  MUSTER_RETURN_IF_ERROR(CheckDescriptorLimit(limit, members, is_chief));
  const std::string warning = DescriptorWarning(limit, members, is_chief);
  if (!warning.empty()) LogWarning("{}", warning);
  return absl::OkStatus();
}

}  // namespace

absl::Status TaskSetup::Read(const TaskArguments& arguments, TaskType binary,
                             StopSignals* signals) {
  MUSTER_ASSIGN_OR_RETURN(cluster, ClusterFromEnvironment(ProcessEnvironment()));
  const bool trains = binary == TaskType::kChief || binary == TaskType::kWorker;
  InitLogging(!cluster.local() ? cluster.Who() : trains ? "" : std::string(TaskTypeName(binary)));
  // The launcher continues without an evaluator that a signal ended. It does not after the exit
  // code of an uncaught exception (OnUncaught).
  if (binary != TaskType::kEvaluator) {
    NameFatalSignals(cluster.local() ? "muster" : cluster.Who());
    OnUncaught(nullptr, Duration::zero());
  }
  signals->Start();  // Called after InitLogging, which replaces the logger that Start uses.
  for (const std::string& warning : cluster.warnings) LogWarning("{}", warning);
  MUSTER_RETURN_IF_ERROR(CheckDescriptors(cluster));
  MUSTER_RETURN_IF_ERROR(CheckBinary(cluster, binary));
  MUSTER_RETURN_IF_ERROR(LoadJobOrSecurity(arguments.job, arguments.overrides, &job));
  UseFileMode(job);
  MUSTER_ASSIGN_OR_RETURN(faults, MakeFaults(arguments, cluster));
  return absl::OkStatus();
}

absl::Status TaskSetup::Start() {
  MUSTER_ASSIGN_OR_RETURN(cluster.identity, IdentityOfTask(cluster, job));
  MUSTER_ASSIGN_OR_RETURN(telemetry, TaskTelemetry::Start(cluster, job, Restarts()));
  return absl::OkStatus();
}

absl::Status TaskSetup::OwnFailure(const absl::Status& why, ExitCode code) const {
  Verdict verdict;
  verdict.code = code;
  verdict.task = cluster.local() ? "" : cluster.task->ToString();
  verdict.host = rpc::ThisHost().name;
  verdict.message = Message(why);
  return StatusOf(verdict, verdict.task, cluster.role() == TaskType::kChief);
}

}  // namespace muster
