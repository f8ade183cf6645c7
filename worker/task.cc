#include "worker/task.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/base/process/fatal.h"
#include "common/base/process/restarts.h"
#include "common/base/process/service_manager.h"
#include "common/cluster/verdict.h"
#include "common/collective/nccl/nccl.h"
#include "common/flight/spans.h"
#include "common/job/cuda_presence.h"
#include "common/job/job_checks.h"
#include "common/job/job_files.h"
#include "common/job/program_path.h"
#include "common/membership/member_options.h"
#include "common/membership/metered_membership.h"
#include "common/process/task_identity.h"
#include "common/train/evaluation.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/replica/integer_buffers.h"
#include "common/train/replica/replica.h"
#include "common/train/state/snapshot.h"
#include "common/train/state/weights.h"
#include "common/train/trainer.h"
#include "muster/version.h"
#include "worker/formation.h"
#include "worker/parameter_server/ps_worker.h"

namespace muster::worker {
namespace {

using membership::MemberOptions;

// Limit for the program's code to return after the job has ended.
constexpr Duration kGraceAfterVerdict = std::chrono::seconds(3);
// Limit for a process with an uncaught exception to inform the chief, and for the chief to end.
constexpr Duration kUncaught = std::chrono::seconds(20);
std::map<std::string, std::string> Versions() {
  return {{"muster", MUSTER_VERSION}, {"libtorch", TORCH_VERSION}};
}

// Ends the process if the program's code does not return after the end of the job. The code may be
// blocked where no communicator wakes it. `chief` is null in other processes than the chief.
// `*back` becomes true when the program's code has returned.
void ScheduleExit(const Verdict& verdict, const std::string& self, ChiefRole* chief,
                  const std::shared_ptr<std::atomic<bool>>& back,
                  const std::string& termination_log) {
  std::thread([=] {
    std::this_thread::sleep_for(kGraceAfterVerdict);
    if (*back) return;
    const absl::Status status = StatusOf(verdict, self, chief != nullptr);
    if (chief != nullptr) (void)chief->End(status);
    if (*back) return;
    LogError("the program did not return within {} s of the verdict: this process exits",
             Seconds(kGraceAfterVerdict));
    EndNow(std::string(Message(status)), termination_log, verdict.code);
  }).detach();
}

class Task {
 public:
  Task(const TaskParts& parts, StopSignals* signals) : parts_(parts), signals_(signals) {}

  // Runs the task with parsed arguments. The message of an error is this process's last line.
  absl::Status Run(const TaskArguments& arguments);

 private:
  absl::Status ReadConfiguration(const TaskArguments& arguments);
  // Returns an error if the job has valid options that this version does not support.
  absl::Status CheckSupported() const;
  absl::Status CheckBackend() const;
  absl::Status Prepare(const StartingPoint& start);
  // Prepares the worker's part of a parameter-server job, the chief's part, or both.
  absl::Status PrepareForServers(const StartingPoint& start);
  // Prepares training, from the chief's starting point if this process is the chief. Returns false
  // if the run is finished.
  absl::StatusOr<bool> Begin();
  absl::Status Train();
  absl::Status Direct();
  absl::Status DirectAndWork();
  // Trains, as a member or alone.
  absl::Status Work(Membership* membership, const PsWorkerPeers& peers = {});
  absl::Status TrainAsMember();
  // Logs that gradients are not encrypted, if everything else is.
  void LogUnencrypted() const;
  absl::StatusOr<MemberDevices> DevicesHeld() const;
  MemberOptions OptionsOfMember(transport::DataListener* listener);
  // Ends this process if its device or host has failed. The job continues, and another process can
  // replace this one.
  absl::Status EndIfFaulty(const absl::Status& result) const;
  // Reports a failure of this process to the chief before it has a Member. Returns a status with
  // the process's last line.
  absl::Status FailEarly(const absl::Status& failure);

  bool alone() const { return setup_.cluster.local(); }
  bool has_servers() const { return *setup_.job.strategy == StrategyKind::kParameterServer; }
  bool is_chief() const { return setup_.cluster.role() == TaskType::kChief; }
  std::string self() const { return alone() ? "" : setup_.cluster.task->ToString(); }
  const TaskParts& parts_;
  StopSignals* const signals_;
  TaskSetup setup_;
  std::unique_ptr<membership::FaultyMember> faulty_member_;  // Null if no faults are planned.
  std::unique_ptr<ChiefRole> chief_;
  std::vector<c10::Device> devices_;
  std::unique_ptr<Trainer> trainer_;     // For synchronous training.
  std::unique_ptr<PsWorker> ps_worker_;  // For a worker of a parameter-server job.
  std::unique_ptr<Replica> directed_;    // For the chief of a parameter-server job.
  DirectorStart direct_;
  const std::unique_ptr<Supervisor> supervisor_ = MakeSupervisor();
  const std::shared_ptr<SpanRecorder> spans_ = std::make_shared<SpanRecorder>();
  const std::shared_ptr<std::atomic<bool>> back_ = std::make_shared<std::atomic<bool>>(false);
};

absl::Status Task::ReadConfiguration(const TaskArguments& arguments) {
  MUSTER_RETURN_IF_ERROR(setup_.Read(arguments, parts_.binary, signals_));
  if (setup_.faults != nullptr)
    faulty_member_ = std::make_unique<membership::FaultyMember>(setup_.faults.get());
  Job& job = setup_.job;
  MUSTER_RETURN_IF_ERROR(AddProgramDigest(job.program, &job.digests));
  MUSTER_ASSIGN_OR_RETURN(job.strategy, StrategyFor(job, setup_.cluster));
  if (job.deterministic) ComputeDeterministically();
  UseInterface(job.collective.interface);
  DigestFiles(&job);
  MUSTER_RETURN_IF_ERROR(CheckSupported());
  return setup_.Start();
}

absl::Status Task::CheckSupported() const {
  MUSTER_RETURN_IF_ERROR(muster::CheckSupported(setup_.job));
  if (is_chief() && setup_.job.model_dir.empty()) {
    LogWarning(
        "model_dir is not set: nothing is saved, and the trained weights are lost when the job "
        "ends");
  }
  return alone() ? absl::OkStatus()
                 : CheckMembers(setup_.job, setup_.cluster.world_size().value_or(0));
}

absl::Status Task::CheckBackend() const {
  const std::string& backend = setup_.job.collective.backend;
  const bool cuda = !CudaIndices(devices_).empty();
  if (cuda ? backend == "auto" || backend == "nccl" : backend != "nccl") return absl::OkStatus();
  return ConfigurationError(
      fmt::format("collective.backend is {}, but the replicas are on {}: use auto", backend,
                  cuda ? "CUDA devices" : "the CPU"));
}

absl::Status Task::PrepareForServers(const StartingPoint& start) {
  MUSTER_ASSIGN_OR_RETURN(const ProgramFactory program, parts_.find_program(setup_.job.program));
  if (setup_.cluster.task->type == TaskType::kWorker) {
    MUSTER_ASSIGN_OR_RETURN(devices_, ParseDevices(setup_.job.devices));
    PsWorkerOptions options;
    options.job = setup_.job;
    options.program = program;
    options.devices = devices_;
    options.worker = setup_.cluster.task->index;
    options.workers = setup_.cluster.cluster.Count(TaskType::kWorker);
    options.servers = setup_.cluster.cluster.Count(TaskType::kPs);
    const std::string& host = setup_.cluster.cluster.AddressOf(*setup_.cluster.task).host;
    options.workers_on_host = static_cast<int>(
        std::count_if(setup_.cluster.cluster.worker.begin(), setup_.cluster.cluster.worker.end(),
                      [&](const Address& address) { return address.host == host; }));
    options.chief_address = setup_.cluster.cluster.AddressOf(*setup_.cluster.chief()).ToString();
    options.channel = membership::ChannelToChief(setup_.cluster);
    options.meter = setup_.telemetry->meter();
    MUSTER_ASSIGN_OR_RETURN(ps_worker_, PsWorker::Make(std::move(options)));
  }
  if (chief_ == nullptr) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(directed_, Replica::Make(setup_.job, program, c10::Device(c10::kCPU)));
  if (chief_->checkpoints() != nullptr) MUSTER_RETURN_IF_ERROR(CheckSavable(*directed_));
  MUSTER_RETURN_IF_ERROR(CheckForServers(*directed_));
  if (!start.restore) {
    direct_.built_integers = IntegerBuffersOf(*directed_);
    direct_.unloaded = LoadWeights(checkpoint::PosixFileSystem(), setup_.job, directed_.get());
    if (!direct_.unloaded.ok())
      LogWarning("{}; this ends the job unless the servers hold the state of the run",
                 Message(direct_.unloaded));
  }
  direct_.replica = directed_.get();
  direct_.test_every = directed_->test_every();
  direct_.restore = start.restore;
  direct_.observers = chief_->observers();
  direct_.checkpoints = chief_->checkpoints();
  for (const auto& [split, declaration] : directed_->datasets()) {
    MUSTER_ASSIGN_OR_RETURN(const data::DatasetPtr dataset, MakeDataset(*directed_, split));
    (split == Split::kTrain        ? direct_.train_examples
     : split == Split::kValidation ? direct_.validation_examples
                                   : direct_.test_examples) = dataset->size();
  }
  if (direct_.train_examples == 0) return ConfigurationError("the train dataset is empty");
  return absl::OkStatus();
}

absl::Status Task::Prepare(const StartingPoint& start) {
  if (setup_.faults != nullptr) setup_.faults->At(Phase::kStarting, 0);
  if (has_servers()) return PrepareForServers(start);
  MUSTER_ASSIGN_OR_RETURN(devices_, ParseDevices(setup_.job.devices));
  MUSTER_RETURN_IF_ERROR(CheckBackend());
  if (*setup_.job.strategy == StrategyKind::kOneDevice && devices_.size() > 1) {
    return ConfigurationError(
        fmt::format("strategy is one_device, but devices is \"{}\", which are {}",
                    setup_.job.devices, devices_.size()));
  }
  MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, parts_.find_program(setup_.job.program));
  TrainerOptions options{setup_.job, std::move(program), devices_, {}, nullptr};
  options.begins_run = alone() || chief_ != nullptr;
  if (chief_ != nullptr) {
    options.observers = chief_->observers();
    options.checkpoints = chief_->checkpoints();
    options.on_state_lost = [log = parts_.termination_log](const std::string& why) {
      EndNow(why + "; this process ends, and the next one continues from the last checkpoint", log,
             ExitCode::kRetryable);
    };
  }
  options.restarts = Restarts();
  options.meter = setup_.telemetry->meter();
  if (!alone())
    options.declared_members =
        setup_.cluster.world_size().value_or(1) - static_cast<int>(setup_.job.elastic.spares);
  MUSTER_ASSIGN_OR_RETURN(trainer_, Trainer::Make(std::move(options)));
  if (start.restore) return trainer_->Restore(*start.restore);
  if (chief_ == nullptr) return absl::OkStatus();
  const absl::Status loaded = trainer_->Load(checkpoint::PosixFileSystem());
  if (alone() || loaded.ok() || !start.may_be_held) return loaded;
  LogWarning("{}; this ends the job unless other processes hold the state of the run",
             Message(loaded));
  // This process may be a restarted chief whose workers hold a newer state. They then do not need
  // these weights, and the error does not matter.
  trainer_->EndUnlessTakenOver(loaded);
  return absl::OkStatus();
}

absl::StatusOr<bool> Task::Begin() {
  StartingPoint start;
  if (chief_ != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(start, chief_->Begin());
  }
  if (start.finished) return false;
  MUSTER_RETURN_IF_ERROR(Prepare(start));
  return true;
}

absl::Status Task::FailEarly(const absl::Status& failure) {
  if (alone() || chief_ != nullptr || absl::IsCancelled(failure))
    return failure;  // The chief's part makes the last line.
  return membership::FailEarly(setup_, failure, [this] { return signals_->requested(); });
}

absl::StatusOr<MemberDevices> Task::DevicesHeld() const {
  MemberDevices held_devices;
  const std::vector<int> cuda = CudaIndices(devices_);
  // The workers of a job with servers may have different devices.
  if (has_servers() || alone()) {
    if (cuda.empty()) return held_devices;
    if (const auto uuids = collective::CudaUuids(cuda); uuids.ok())
      setup_.telemetry->WatchGpus(*uuids);
    return held_devices;
  }
  held_devices.kind = cuda.empty() ? "cpu" : "cuda";
  held_devices.driver = DriverVersionHere();
  if (!cuda.empty()) {
    MUSTER_ASSIGN_OR_RETURN(held_devices.uuids, collective::CudaUuids(cuda));
    setup_.telemetry->WatchGpus(held_devices.uuids);
    if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr) held_devices.nccl_host_id = id;
  }
  return held_devices;
}

MemberOptions Task::OptionsOfMember(transport::DataListener* listener) {
  MemberOptions options =
      membership::MemberOptionsOf(setup_, supervisor_.get(), parts_.termination_log);
  const bool replaceable =
      setup_.job.elastic.min_workers.has_value() || setup_.job.elastic.spares > 0;
  options.may_leave = replaceable && !is_chief() && !has_servers();
  options.versions = Versions();
  options.num_replicas = has_servers() ? 1 : trainer_->num_replicas();
  options.devices = setup_.job.devices;
  options.data_address = listener->address();
  options.form =
      FormationOver({listener, devices_, setup_.job.collective, setup_.job.timeouts.collective,
                     [this](const absl::Status& why) { return EndIfFaulty(why); },
                     setup_.telemetry->meter()->traffic()});
  options.timeouts.formation =
      FormationTimeout(setup_.job.timeouts.formation, !CudaIndices(devices_).empty());
  options.on_verdict = [self = self(), chief = chief_.get(), back = back_,
                        log = parts_.termination_log](const Verdict& verdict) {
    if (verdict.code != ExitCode::kDone) ScheduleExit(verdict, self, chief, back, log);
  };
  if (is_chief()) {
    // Ends the process as if it were killed. The other members keep their state and wait for its
    // successor. An orderly end would end the job.
    options.on_given_up = [self = self(), log = parts_.termination_log](const Verdict& verdict) {
      EndNow(FinalLine(verdict, self, /*is_chief=*/true), log, verdict.code);
    };
  }
  options.spans = spans_;
  if (faulty_member_ != nullptr) faulty_member_->Adapt(&options);
  return options;
}

absl::Status Task::EndIfFaulty(const absl::Status& result) const {
  // A failure after a completed step would not recur at every start, so restarts do not count.
  const bool has_trained = (trainer_ != nullptr && trainer_->has_trained()) ||
                           (ps_worker_ != nullptr && ps_worker_->has_trained());
  const absl::Status judged = ClassifyFault(result, has_trained ? 0 : Restarts());
  // Ends the process as if it were killed. If this is the chief, an orderly end would end the job.
  if (!alone() && IsProcessFault(judged)) {
    EndNow(fmt::format("{}; ending this process, another one can take its place", Message(judged)),
           parts_.termination_log, ExitCode::kRetryable);
  }
  return judged;
}

absl::Status Task::Work(Membership* membership, const PsWorkerPeers& peers) {
  const std::unique_ptr<Membership> metered =
      membership::MakeMeteredMembership(membership, setup_.telemetry->meter());
  membership = metered.get();
  std::unique_ptr<Membership> faulty;
  if (setup_.faults != nullptr) {
    faulty = membership::MakeFaultyMembership(membership, setup_.faults.get());
    membership = faulty.get();
  }
  if (!CudaIndices(devices_).empty()) UseNvtx();
  if (trainer_ != nullptr) return EndIfFaulty(trainer_->Run(membership));
  return EndIfFaulty(ps_worker_->Run({membership, peers.incarnation, peers.listener}));
}

void Task::LogUnencrypted() const {
  if (is_chief() && !FirstRemoteHost(setup_.cluster.cluster).empty() &&
      setup_.cluster.identity != nullptr && !CudaIndices(devices_).empty())
    LogWarning(
        "NCCL's connections between GPUs of different hosts are not encrypted: keep these hosts in "
        "a network of their own (docs/security.md)");
}

absl::Status Task::TrainAsMember() {
  LogUnencrypted();
  absl::StatusOr<std::unique_ptr<transport::DataListener>> listener = membership::OpenDataPort(
      setup_, faulty_member_.get(), [this] { return signals_->requested(); });
  if (!listener.ok()) return FailEarly(listener.status());
  if (!is_chief()) {
    MUSTER_ASSIGN_OR_RETURN(const bool finished, membership::FinishedWithoutChief(setup_, [this] {
                              return signals_->requested();
                            }));
    if (finished) return absl::OkStatus();
  }
  absl::StatusOr<MemberDevices> held_devices = DevicesHeld();
  if (!held_devices.ok()) return FailEarly(EndIfFaulty(held_devices.status()));
  MemberOptions options = OptionsOfMember(listener->get());
  options.held_devices = *std::move(held_devices);
  const std::unique_ptr<membership::Member> member = membership::Member::Make(std::move(options));
  signals_->SetHandler([to = member.get()] { to->RequestStop(); });
  OnUncaught(
      [to = member.get()](const std::string& why) {
        to->ReportFailure(ProgramError(why));
        // Waits, because on_verdict ends this process (ScheduleExit).
        if (to->verdict()) std::this_thread::sleep_for(kUncaught);
      },
      kUncaught);
  const absl::Status result = Work(member.get(), {nullptr, member->incarnation(), listener->get()});
  *back_ = true;
  OnUncaught(nullptr, Duration::zero());
  signals_->SetHandler(nullptr);
  if (result.ok()) return result;
  return absl::Status(result.code(), member->FinalLine(result));
}

absl::Status Task::Direct() {
  OnUncaught([this](const std::string& why) { chief_->EndJob(ProgramError(why)); }, kUncaught);
  const absl::Status result = chief_->Direct(direct_);
  OnUncaught(nullptr, Duration::zero());
  return result;
}

// Runs worker 0 of a cluster without a chief. Directing and working have a replica each.
absl::Status Task::DirectAndWork() {
  absl::Status directed;
  std::thread director([&] { directed = chief_->Direct(direct_); });
  const absl::Status worked = TrainAsMember();
  // Has no effect if a verdict has already ended the job.
  if (!worked.ok()) chief_->EndJob(worked);
  director.join();
  return worked.ok() ? directed : worked;
}

absl::Status Task::Train() {
  TellReady();
  if (has_servers() && is_chief()) {
    if (ps_worker_ != nullptr) return DirectAndWork();
    signals_->SetHandler([to = chief_.get()] { to->RequestStop(); });
    return Direct();
  }
  if (!alone()) return TrainAsMember();
  MUSTER_RETURN_IF_ERROR(DevicesHeld().status());
  const std::unique_ptr<Membership> membership = MakeLocalMembership(
      trainer_->num_replicas(), setup_.job.timeouts.collective, CudaIndices(devices_));
  signals_->SetHandler([to = membership.get()] { to->RequestStop(); });
  const absl::Status result = Work(membership.get());
  signals_->SetHandler(nullptr);
  return result;
}

absl::Status Task::Run(const TaskArguments& arguments) {
  const SpanThread thread(spans_, "main loop");
  absl::Status result = ReadConfiguration(arguments);
  if (result.ok() && is_chief()) {
    auto chief = parts_.start_chief({setup_.cluster, setup_.job, Versions(), Restarts() > 0,
                                     setup_.faults.get(), [this] { return signals_->requested(); },
                                     setup_.telemetry->meter()});
    if (chief.ok()) chief_ = *std::move(chief);
    result = chief.status();
  }
  bool train = false;
  if (result.ok()) {
    const absl::StatusOr<bool> begun = Begin();
    result = EndIfFaulty(begun.status());
    train = begun.ok() && *begun;
  }
  if (train) {
    result = Train();
  } else if (!result.ok()) {
    result = FailEarly(result);
  }
  if (chief_ == nullptr) return result;
  signals_->SetHandler([to = chief_.get()] { to->StopWaiting(); });
  result = chief_->End(result);
  signals_->SetHandler(nullptr);
  return result;
}

}  // namespace

int RunTask(int argc, char** argv, const TaskParts& parts) {
  TaskMain main;
  main.about =
      fmt::format("{}: trains a job as the task that TF_CONFIG names, alone where it names none.",
                  BinaryName(parts.binary));
  main.on_signal = "stopping at the next step; a second SIGINT ends this process at once";
  main.termination_log = parts.termination_log;
  return RunTaskMain(argc, argv, main, [&](const TaskArguments& arguments, StopSignals* signals) {
    return Task(parts, signals).Run(arguments);
  });
}

}  // namespace muster::worker
