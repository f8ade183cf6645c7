#include "evaluator/task.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "common/base/logging.h"
#include "common/base/process/restarts.h"
#include "common/base/process/service_manager.h"
#include "common/cluster/other_file.h"
#include "common/cluster/verdict.h"
#include "common/job/finished_run.h"
#include "common/job/job.h"
#include "common/job/job_files.h"
#include "common/job/program_path.h"
#include "common/process/task_identity.h"
#include "common/process/task_process.h"
#include "common/rpc/host.h"
#include "common/telemetry/task_telemetry.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/checkpoint_evaluator.h"
#include "evaluator/follower.h"
#include "evaluator/host_share.h"

namespace muster::evaluator {
namespace {

// The program's code must return within this time once this process must end.
constexpr Duration kGrace = std::chrono::seconds(3);

class EvaluatorTask {
 public:
  EvaluatorTask(const EvaluatorParts& parts, StopSignals* signals)
      : parts_(parts), signals_(signals) {}
  ~EvaluatorTask() { signals_->SetHandler(nullptr); }

  // Runs everything after the command line. An error's message is this process's last line.
  absl::Status Run(const TaskArguments& arguments);

 private:
  absl::Status ReadConfiguration(const TaskArguments& arguments);
  FollowerOptions OptionsOfFollower();
  absl::Status Prepare(const std::string& job);
  absl::StatusOr<Evaluated> Evaluate(const checkpoint::Snapshot& snapshot,
                                     const FollowerOptions::Hooks& hooks);

  const EvaluatorParts& parts_;
  StopSignals* const signals_;
  ClusterConfig cluster_;
  std::unique_ptr<Faults> faults_;  // Null: none are planned.
  // The job of the command line. The chief's job replaces it, except for settings of this host.
  Job own_;
  std::unique_ptr<TaskTelemetry> telemetry_;
  std::unique_ptr<CheckpointEvaluator> evaluator_;
};

absl::Status EvaluatorTask::ReadConfiguration(const TaskArguments& arguments) {
  MUSTER_ASSIGN_OR_RETURN(cluster_, ClusterFromEnvironment(ProcessEnvironment()));
  InitLogging(cluster_.local() ? "evaluator" : cluster_.Who());
  signals_->Start();  // After InitLogging, which replaces the logger in use.
  for (const std::string& warning : cluster_.warnings) LogWarning("{}", warning);
  MUSTER_RETURN_IF_ERROR(CheckDescriptors(cluster_));
  MUSTER_RETURN_IF_ERROR(CheckBinary(cluster_, TaskType::kEvaluator));
  if (cluster_.task->index != 0)
    return ConfigurationError(fmt::format(
        "TF_CONFIG: task is {}, but a cluster has one evaluator: start evaluator 0 only",
        cluster_.task->DisplayName()));
  MUSTER_ASSIGN_OR_RETURN(own_, LoadJob(arguments.job, arguments.overrides));
  UseFileMode(own_);
  MUSTER_RETURN_IF_ERROR(AddProgramDigest(own_.program, &own_.digests));
  if (own_.deterministic) ComputeDeterministically();
  MUSTER_ASSIGN_OR_RETURN(faults_, MakeFaults(arguments, cluster_));
  MUSTER_ASSIGN_OR_RETURN(cluster_.identity, IdentityOfTask(cluster_, own_));
  MUSTER_ASSIGN_OR_RETURN(telemetry_, TaskTelemetry::Start(cluster_, own_, Restarts()));
  // Resolves the strategy as the chief does, so that the two jobs can be compared.
  if (const auto strategy = StrategyFor(own_, cluster_); strategy.ok()) own_.strategy = *strategy;
  return absl::OkStatus();
}

absl::Status EvaluatorTask::Prepare(const std::string& text) {
  if (faults_ != nullptr) faults_->At(Phase::kStarting, 0);
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the chief's job"));
  MUSTER_ASSIGN_OR_RETURN(Job job, JobFromJson(json));
  job.folder = own_.folder;
  // The program is that of this task's job. The data is that of the chief's job, read on this host.
  job.digests = own_.digests;
  DigestFiles(&job);
  if (const std::string key = FirstDifferingFile(JobToJson(job), json); !key.empty())
    return ConfigurationError(OtherFile(cluster_.task->ToString(), key));
  // This task decides how many examples fit on this host at once.
  if (own_.evaluate.batch_size) job.evaluate = own_.evaluate;
  if (const std::string key = FirstDifference(JobToJson(own_), JobToJson(job)); !key.empty())
    LogInfo("the chief's job overrides this task's, which differs in {}", key);
  job.devices = own_.devices;
  job.tls = own_.tls;
  job.security = own_.security;
  if (!ProgramFile(job.program).empty() && !ProgramFile(own_.program).empty())
    job.program = own_.program;  // The same file, whatever its path on this host.
  const bool shared = SharesHost(cluster_.cluster);
  job.devices = EvaluatorDevices(job.devices, shared, std::getenv("CUDA_VISIBLE_DEVICES"));
  MUSTER_ASSIGN_OR_RETURN(auto devices, ParseDevices(job.devices));
  MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, parts_.find_program(job.program));
  if (shared) {
    LogInfo("members train on this host: evaluation uses one thread at low priority");
    LowerPriority();
    at::set_num_threads(1);
  }
  evaluator_.reset();
  MUSTER_ASSIGN_OR_RETURN(evaluator_,
                          CheckpointEvaluator::Make({job, std::move(program), devices}));
  LogInfo("this task evaluates the {} split, which has {} examples", SplitName(evaluator_->split()),
          evaluator_->examples());
  return absl::OkStatus();
}

absl::StatusOr<Evaluated> EvaluatorTask::Evaluate(const checkpoint::Snapshot& snapshot,
                                                  const FollowerOptions::Hooks& hooks) {
  if (faults_ != nullptr) faults_->At(Phase::kEvaluate, snapshot.state.step);
  TaskMeter& meter = *telemetry_->meter();
  meter.EnterPhase(Phase::kEvaluate, snapshot.state.step);
  absl::StatusOr<CheckpointEvaluation> result =
      evaluator_->Evaluate(snapshot, {hooks.progress, hooks.cancelled});
  meter.EnterPhase(Phase::kStarting, snapshot.state.step);
  MUSTER_ASSIGN_OR_RETURN(CheckpointEvaluation evaluation, std::move(result));
  meter.AddExamples(evaluation.examples);
  return Evaluated{std::move(evaluation.metrics), evaluation.examples, evaluation.seconds};
}

FollowerOptions EvaluatorTask::OptionsOfFollower() {
  FollowerOptions options;
  options.link.task = cluster_.task->ToString();
  options.link.chief_task = cluster_.chief()->ToString();
  options.link.chief_address = cluster_.cluster.AddressOf(*cluster_.chief()).ToString();
  options.link.cluster_digest = cluster_.cluster.Digest();
  options.link.patience = own_.timeouts.join;
  options.link.channel.identity = cluster_.identity;
  options.link.channel.server_task = cluster_.chief()->ToString();
  options.link.finished = [this] { return FinishedRun(own_); };
  // The backoff is short, to find the chief of a short job in time.
  options.link.channel.retry.max = std::chrono::milliseconds(250);
  options.files = &checkpoint::PosixFileSystem();
  options.prepare = [this](const std::string& job) {
    absl::Status prepared;
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("preparing", [&] { prepared = Prepare(job); }));
    return prepared;
  };
  options.evaluate = [this](const checkpoint::Snapshot& snapshot,
                            const FollowerOptions::Hooks& hooks) {
    absl::StatusOr<Evaluated> evaluated = absl::UnknownError("");
    const absl::Status status =
        CatchProgramErrors("evaluating", [&] { evaluated = Evaluate(snapshot, hooks); });
    return status.ok() ? std::move(evaluated) : status;
  };
  options.on_ending = [log = parts_.termination_log](const absl::Status& result) {
    std::thread([=] {
      std::this_thread::sleep_for(kGrace);
      ReportResult(result, log);
      LogWarning("the program did not return within {} s: this process exits", Seconds(kGrace));
      LeaveProcess(ExitCodeOf(result));
    }).detach();
  };
  return options;
}

absl::Status EvaluatorTask::Run(const TaskArguments& arguments) {
  if (const absl::Status wrong = ReadConfiguration(arguments); !wrong.ok()) {
    Verdict verdict;
    verdict.code = ExitCodeOf(wrong);
    verdict.task = cluster_.local() ? "" : cluster_.task->ToString();
    verdict.host = rpc::ThisHost().name;
    verdict.message = Message(wrong);
    return StatusOf(verdict, verdict.task, /*is_chief=*/false);
  }
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<Follower> follower,
                          Follower::Make(OptionsOfFollower()));
  signals_->SetHandler([to = follower.get()] { to->Stop(); });
  TellReady();
  const absl::Status result = follower->Run();
  signals_->SetHandler(nullptr);
  return result;
}

}  // namespace

int RunEvaluator(int argc, char** argv, const EvaluatorParts& parts) {
  TaskMain main;
  main.about =
      "muster-evaluator: evaluates the checkpoints of the job whose chief TF_CONFIG names.";
  main.on_signal = "stopping";
  main.on_unhandled = [] { LeaveProcess(ExitCode::kPreempted); };
  main.termination_log = parts.termination_log;
  return RunTaskMain(argc, argv, main, [&](const TaskArguments& arguments, StopSignals* signals) {
    return EvaluatorTask(parts, signals).Run(arguments);
  });
}

}  // namespace muster::evaluator
