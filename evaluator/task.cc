#include "evaluator/task.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <thread>

#include "common/base/logging.h"
#include "common/base/process/service_manager.h"
#include "common/cluster/other_file.h"
#include "common/job/finished_run.h"
#include "common/job/job.h"
#include "common/job/job_files.h"
#include "common/job/program_path.h"
#include "common/process/task_setup.h"
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
  TaskSetup setup_;  // The chief's job replaces setup_.job, except for settings of this host.
  std::unique_ptr<CheckpointEvaluator> evaluator_;
};

absl::Status EvaluatorTask::ReadConfiguration(const TaskArguments& arguments) {
  MUSTER_RETURN_IF_ERROR(setup_.Read(arguments, TaskType::kEvaluator, signals_));
  Job& job = setup_.job;
  MUSTER_RETURN_IF_ERROR(AddProgramDigest(job.program, &job.digests));
  if (job.deterministic) ComputeDeterministically();
  MUSTER_RETURN_IF_ERROR(setup_.Start());
  // Resolves the strategy as the chief does, so that the two jobs can be compared.
  if (const auto strategy = StrategyFor(job, setup_.cluster); strategy.ok())
    job.strategy = *strategy;
  return absl::OkStatus();
}

absl::Status EvaluatorTask::Prepare(const std::string& text) {
  if (setup_.faults != nullptr) setup_.faults->At(Phase::kStarting, 0);
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the chief's job"));
  MUSTER_ASSIGN_OR_RETURN(Job job, JobFromJson(json));
  const Job& own = setup_.job;
  job.folder = own.folder;
  // The program is that of this task's job. The data is that of the chief's job, read on this host.
  job.digests = own.digests;
  DigestFiles(&job);
  if (const std::string key = FirstDifferingFile(JobToJson(job), json); !key.empty())
    return ConfigurationError(OtherFile(setup_.cluster.task->ToString(), key));
  // This task decides how many examples fit on this host at once.
  if (own.evaluate.batch_size) job.evaluate = own.evaluate;
  if (const std::string key = FirstDifference(JobToJson(own), JobToJson(job)); !key.empty())
    LogInfo("the chief's job overrides this task's, which differs in {}", key);
  job.devices = own.devices;
  job.tls = own.tls;
  job.security = own.security;
  if (!ProgramFile(job.program).empty() && !ProgramFile(own.program).empty())
    job.program = own.program;  // The same file, whatever its path on this host.
  const bool shared = SharesHost(setup_.cluster.cluster);
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
  if (setup_.faults != nullptr) setup_.faults->At(Phase::kEvaluate, snapshot.state.step);
  TaskMeter& meter = *setup_.telemetry->meter();
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
  options.link.task = setup_.cluster.task->ToString();
  options.link.chief_task = setup_.cluster.chief()->ToString();
  options.link.chief_address = setup_.cluster.cluster.AddressOf(*setup_.cluster.chief()).ToString();
  options.link.cluster_digest = setup_.cluster.cluster.Digest();
  options.link.patience = setup_.job.timeouts.join;
  options.link.channel.identity = setup_.cluster.identity;
  options.link.channel.server_task = setup_.cluster.chief()->ToString();
  options.link.finished = [this] { return FinishedRun(setup_.job); };
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
  if (const absl::Status wrong = ReadConfiguration(arguments); !wrong.ok())
    return setup_.OwnFailure(wrong, ExitCodeOf(wrong));
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
