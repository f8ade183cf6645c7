#include "chief/chief.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/coordinator/coordinator.h"
#include "chief/evaluation/evaluation_service.h"
#include "chief/flight_service.h"
#include "chief/model_dir/checkpoints.h"
#include "chief/model_dir/fenced_files.h"
#include "chief/model_dir/owner.h"
#include "chief/model_dir/publisher.h"
#include "chief/model_dir/resume.h"
#include "chief/parameter_server/director/director.h"
#include "chief/service_options.h"
#include "chief/status/chief_status.h"
#include "chief/system_summaries.h"
#include "chief/trace_service.h"
#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "common/base/process/service_manager.h"
#include "common/checkpoint/files/faulty_file_system.h"
#include "common/job/finished_run.h"
#include "common/job/program_path.h"
#include "common/process/supervisor.h"
#include "common/rpc/host.h"
#include "common/telemetry/task_meter.h"

namespace muster::chief {
namespace {

constexpr Duration kFlightDrain = std::chrono::seconds(5);  // Limit for a slow disk.
// Limit for the end of a trace that is in progress when the job ends.
constexpr Duration kTraceDrain = std::chrono::seconds(2);
// After this time the supervisor kills a lost member that was asked to exit.
constexpr Duration kExitGrace = std::chrono::seconds(5);

// Returns the seconds since the last write to the file, below 0 if it does not exist.
double SecondsSince(const std::string& path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (error) return -1;
  const auto age = std::filesystem::file_time_type::clock::now() - written;
  return std::max(0.0, std::chrono::duration<double>(age).count());
}

// Logs the size of the data, of the model and of the job. `apart` is true if each process applies
// its part of the global batch by itself.
void LogStart(const StartReport& report, bool apart) {
  std::vector<std::string> splits, models;
  for (const auto& [name, size] : report.split_sizes)
    splits.push_back(fmt::format("{} {}", name, size < 0 ? "unknown" : FormatGrouped(size)));
  for (const auto& [name, count] : report.parameter_counts)
    models.push_back(fmt::format("{} {}", name, FormatGrouped(count)));
  LogInfo("examples: {}; parameters: {}", fmt::join(splits, ", "), fmt::join(models, ", "));
  for (const std::string& line : report.groups) LogInfo("{}", line);
  const std::string steps =
      report.steps_per_epoch > 0
          ? fmt::format(", {} steps an epoch", FormatGrouped(report.steps_per_epoch))
          : "";
  LogInfo("global batch {} on {} replica{} in {} process{}{}{}", report.global_batch_size,
          report.num_replicas, report.num_replicas == 1 ? "" : "s", report.world_size,
          report.world_size == 1 ? "" : "es", steps, apart ? ", each of one process's part" : "");
}

// Returns the verdict of a job that ends with `result`. `self` is the chief, which is the cause of
// a failure.
Verdict VerdictOf(const absl::Status& result, const std::string& self) {
  Verdict verdict;
  verdict.code = ExitCodeOf(result);
  verdict.message = Message(result);
  if (result.ok() || verdict.code == ExitCode::kPreempted) return verdict;  // No task is the cause.
  verdict.task = self;
  verdict.host = rpc::ThisHost().name;
  return verdict;
}

// Returns the state of this process for ChiefStatus::Open. `meter` may be null.
proto::StatusReply OwnState(const std::string& run_id, TaskMeter* meter) {
  proto::StatusReply reply;
  reply.set_run_id(run_id);
  proto::MemberStatus& own = *reply.add_members();
  if (meter == nullptr) return reply;
  *own.mutable_stats() = meter->Stats();
  own.set_phase(std::string(PhaseName(meter->phase().first)));
  return reply;
}

// Checks the start of a job that once had parameter servers and now trains synchronously.
absl::Status CheckUnusedServers(checkpoint::FileSystem& files, const Job& job, size_t servers) {
  if (servers == 0 || HasServers(job)) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(CheckBegunSynchronously(files, job));
  LogInfo(
      "parameter_server.max_staleness is 0: this run continues under \"multi_worker_mirrored\", "
      "without its {} ps task{}",
      servers, servers == 1 ? "" : "s");
  return absl::OkStatus();
}

class Chief : public ChiefRole, private Observer {
 public:
  Chief(checkpoint::FileSystem& files, const ChiefRoleOptions& options)
      : faulty_files_(options.faults == nullptr
                          ? nullptr
                          : checkpoint::MakeFaultyFileSystem(files, options.faults)),
        files_(faulty_files_ == nullptr ? files : *faulty_files_),
        options_(options),
        self_(options.cluster.local() ? "" : options.cluster.task->ToString()),
        status_(options_.cluster, options_.job) {}

  // The Owner may outlive this object, because a checkpoint that is still being written uses it.
  // The Owner's thread must then no longer call this object.
  ~Chief() override {
    {
      absl::MutexLock lock(&self_for_owner_->mu);
      self_for_owner_->chief = nullptr;
    }
    status_.Close();  // It asks the coordinator.
    system_.reset();
    coordinator_.reset();
  }

  absl::Status Start();
  absl::StatusOr<StartingPoint> Begin() override;
  CheckpointSink* checkpoints() override { return checkpoints_.get(); }
  std::vector<Observer*> observers() override;
  absl::Status Direct(const DirectorStart& start) override;
  void EndJob(const absl::Status& result) override;
  void RequestStop() override { coordinator_->RequestStop(); }
  absl::Status End(const absl::Status& result) override;
  void StopWaiting() override {
    if (evaluation_ != nullptr) evaluation_->StopWaiting();
  }

 private:
  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnSuperseded(const absl::Status& superseded);
  // Returns what all tasks measured last, keyed by task.
  std::map<std::string, proto::TaskStats> Stats();
  std::string RunId();
  // Returns OwnerOptions::identity. It is equal for all starts of one job, even if workers were
  // added, the job file was edited, or the chief has another address. A launcher uses new ports at
  // each start, and Slurm may use other hosts.
  std::string Identity() const;
  CoordinatorOptions OptionsOfCoordinator();
  DirectorOptions OptionsOfDirector();
  CheckpointsOptions OptionsOfCheckpoints();
  EvaluationServiceOptions OptionsOfEvaluation();
  FlightServiceOptions OptionsOfFlight();
  TraceServiceOptions OptionsOfTrace();
  void Announce(int64_t step, const std::string& name, const std::string& path, bool final);
  absl::Status OpenStore(int64_t restored_step);

  struct ForOwner {
    absl::Mutex mu;  // Acquired before mu_ of Chief.
    Chief* chief ABSL_GUARDED_BY(mu) = nullptr;
  };

  const std::unique_ptr<checkpoint::FileSystem> faulty_files_;
  checkpoint::FileSystem& files_;
  const ChiefRoleOptions options_;
  const std::string self_;
  const std::shared_ptr<ForOwner> self_for_owner_ = std::make_shared<ForOwner>();
  const std::unique_ptr<Supervisor> supervisor_ = MakeSupervisor();
  std::atomic<uint32_t> term_ = 1;
  std::atomic<uint64_t> newest_generation_ = 0;
  std::atomic<int64_t> step_ = 0;  // The last completed step.
  std::shared_ptr<Owner> owner_;   // Null without a model_dir.
  ChiefStatus status_;             // Outlives the coordinator, which reports to it.
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Checkpoints> checkpoints_;  // Null without a model_dir.
  bool begun_ = false;
  std::unique_ptr<Director> director_;  // Null unless the job has parameter servers.
  // All four are null if this process trains alone.
  std::unique_ptr<EvaluationService> evaluation_;
  std::unique_ptr<FlightService> flight_;
  std::unique_ptr<TraceService> trace_;
  std::unique_ptr<Coordinator> coordinator_;
  absl::Mutex mu_;
  absl::Mutex ending_;  // Acquired before mu_.
  std::optional<absl::Status> verdict_ ABSL_GUARDED_BY(ending_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::string run_id_ ABSL_GUARDED_BY(mu_) = RandomHex();  // Used without a model_dir.
  Coordinator* to_end_ ABSL_GUARDED_BY(mu_) = nullptr;     // coordinator_, for the Owner's thread.
  std::unique_ptr<SystemSummaries> system_;                // Uses most of the members above.
};

std::string Chief::RunId() {
  if (owner_ != nullptr) return owner_->run_id();
  absl::MutexLock lock(&mu_);
  return run_id_;
}

std::string Chief::Identity() const {
  return fmt::format("{}, program {}", options_.cluster.local() ? "alone" : self_,
                     Dump(PortableProgram(options_.job.program)));
}

CoordinatorOptions Chief::OptionsOfCoordinator() {
  CoordinatorOptions options = CoordinatorOptionsOf(options_);
  options.services = {evaluation_->service(), flight_->service(), trace_->service()};
  if (director_ != nullptr) {
    options.services.push_back(director_->service());
    options.events = director_.get();
    options.own_member = self_ == options.members[0].task.ToString() ? 0 : -1;
  }
  options.admission.run_id = RunId();
  options.admission.term = term_;
  options.admission.fresh_run = owner_ == nullptr || owner_->previous_run_id().empty();
  options.record_identity = [this](const std::string& id, uint32_t term) {
    if (owner_ != nullptr) MUSTER_RETURN_IF_ERROR(owner_->RecordRun(id, term));
    term_ = term;
    absl::MutexLock lock(&mu_);
    run_id_ = id;
    return absl::OkStatus();
  };
  options.on_newest = [this](uint64_t generation) { newest_generation_ = generation; };
  options.on_lost = [this](const MemberLossReport& lost) {
    if (lost.missed) publisher_->OnLost(lost.task.ToString(), lost.why);
    supervisor_->ReportLost({lost.task.ToString(), lost.pid, lost.why,
                             lost.asked_to_exit ? kExitGrace : Duration::zero()});
  };
  status_.Follow(&options);
  if (options_.meter != nullptr) {
    for (const DeclaredMember& member : options.members)
      options_.meter->SetStraggler(member.task.ToString(), false);
  }
  options.on_straggler = [this](const TaskId& member, bool straggler) {
    if (options_.meter != nullptr) options_.meter->SetStraggler(member.ToString(), straggler);
    status_.watch().OnStraggler(member, straggler);
  };
  return options;
}

std::map<std::string, proto::TaskStats> Chief::Stats() {
  std::map<std::string, proto::TaskStats> stats;
  if (coordinator_ != nullptr) stats = coordinator_->Stats();
  // A chief that trains is a member too. Its own numbers are the newest.
  if (options_.meter != nullptr)
    stats[options_.cluster.local() ? "worker:0" : self_] = options_.meter->Stats();
  return stats;
}

DirectorOptions Chief::OptionsOfDirector() {
  DirectorOptions options = DirectorOptionsOf(options_);
  options.term = [this] { return term_.load(); };
  options.run_id = [this] { return RunId(); };
  if (options_.meter != nullptr) {
    options.on_counters = [meter = options_.meter](const DirectorRecord& record) {
      proto::PushLosses losses;
      losses.set_refused_pushes(record.refused);
      losses.set_torn_pushes(record.torn);
      losses.set_lost_updates(record.lost_updates);
      meter->SetPushLosses(losses);
    };
  }
  return options;
}

absl::Status Chief::Start() {
  const Job& job = options_.job;
  PublisherOptions publisher = PublisherOptionsOf(options_);
  if (!job.model_dir.empty()) {
    publisher.silent_seconds = SecondsSince(job.model_dir + "/owner.json");
    OwnerOptions owner;
    owner.model_dir = job.model_dir;
    if (job.restore == "never")
      owner.run = options_.restarted ? RunChoice::kResume : RunChoice::kNew;
    owner.identity = Identity();
    owner.wait = job.timeouts.join;
    owner.give_up = options_.asked_to_stop;
    {
      absl::MutexLock lock(&self_for_owner_->mu);
      self_for_owner_->chief = this;
    }
    owner.on_superseded = [self = self_for_owner_](const absl::Status& superseded) {
      absl::MutexLock lock(&self->mu);
      if (self->chief != nullptr) self->chief->OnSuperseded(superseded);
    };
    MUSTER_ASSIGN_OR_RETURN(owner_, Owner::Take(std::move(owner)));
    checkpoints_ = Checkpoints::Make(OptionsOfCheckpoints());
  }
  publisher.progress = MakeProgressSink();
  if (owner_ != nullptr) {
    publisher.fence = [owner = owner_] { return owner->Check(); };
    publisher.term = owner_->term();
  }
  if (options_.faults != nullptr)
    publisher.check_disk = [faults = options_.faults] { return faults->CheckDisk("summaries"); };
  publisher_ = Publisher::Open(std::move(publisher));
  MUSTER_RETURN_IF_ERROR(status_.Bind());
  if (!options_.cluster.local()) {
    evaluation_ = EvaluationService::Make(OptionsOfEvaluation());
    flight_ = FlightService::Make(OptionsOfFlight());
    trace_ = TraceService::Make(OptionsOfTrace());
    if (owner_ != nullptr) term_ = owner_->term();
    if (HasServers(job)) director_ = Director::Make(OptionsOfDirector());
    MUSTER_ASSIGN_OR_RETURN(coordinator_, Coordinator::Start(OptionsOfCoordinator()));
    TellReady();
    absl::MutexLock lock(&mu_);
    to_end_ = coordinator_.get();
  }
  status_.Open(coordinator_.get(), [this] { return OwnState(RunId(), options_.meter); });
  if (owner_ != nullptr)
    status_.WriteFile(FencedFiles([owner = owner_] { return owner->Check(); }, owner_->term()));
  return absl::OkStatus();
}

CheckpointsOptions Chief::OptionsOfCheckpoints() {
  CheckpointsOptions options = CheckpointsOptionsOf(options_);
  options.run_id = [this] { return RunId(); };
  options.check_owner = [owner = owner_] { return owner->Check(); };
  options.on_published = [this](int64_t step, const std::string& name, const std::string& path,
                                bool final) {
    if (options_.meter != nullptr) options_.meter->AddCheckpoint();
    status_.watch().OnCheckpoint(step, path);
    Announce(step, name, path, final);
  };
  return options;
}

EvaluationServiceOptions Chief::OptionsOfEvaluation() {
  EvaluationServiceOptions options = EvaluationOptionsOf(options_);
  options.run_id = [this] { return RunId(); };
  options.files = &files_;
  // Only announced checkpoints are pinned, so checkpoints_ and its store exist.
  options.pin = [this](int64_t step) { return checkpoints_->store()->Pin(step); };
  options.unpin = [this](int64_t step) { checkpoints_->store()->Unpin(step); };
  options.on_metrics = [this](const EvaluationResult& result) {
    publisher_->OnEvaluation(result.step, result.metrics);
    status_.watch().OnEvaluation(result.metrics);
    checkpoints_->Evaluated(result.step, result.metrics);
  };
  return options;
}

FlightServiceOptions Chief::OptionsOfFlight() {
  FlightServiceOptions options = FlightOptionsOf(options_);
  options.run_id = [this] { return RunId(); };
  options.newest = [this] { return newest_generation_.load(); };
  if (owner_ != nullptr) options.fence = [owner = owner_] { return owner->Check(); };
  options.files = &files_;
  return options;
}

TraceServiceOptions Chief::OptionsOfTrace() {
  TraceServiceOptions options = TraceOptionsOf(options_);
  options.run_id = [this] { return RunId(); };
  if (owner_ != nullptr) options.fence = [owner = owner_] { return owner->Check(); };
  options.files = &files_;
  return options;
}

void Chief::Announce(int64_t step, const std::string& name, const std::string& path, bool final) {
  if (evaluation_ == nullptr) return;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  evaluation_->Announce(step, name, error ? path : absolute.string(), final);
}

std::vector<Observer*> Chief::observers() {
  std::vector<Observer*> observers = {publisher_.get(), &status_.watch(), this};
  if (checkpoints_ != nullptr) observers.push_back(checkpoints_.get());
  return observers;
}

absl::Status Chief::OpenStore(int64_t restored_step) {
  checkpoint::StoreOptions options;
  options.directory = options_.job.model_dir + "/checkpoints";
  options.token = owner_->token();
  options.keep = options_.job.checkpoint.keep;
  options.fence = [owner = owner_] { return owner->Check(); };
  auto store = checkpoint::Store::Open(files_, options, restored_step);
  if (!store.ok()) {
    return StartError(store.status(),
                      fmt::format("model_dir '{}' is not writable", options_.job.model_dir));
  }
  checkpoints_->Open(*std::move(store), checkpoint::ReadBest(files_, options.directory));
  return absl::OkStatus();
}

absl::StatusOr<StartingPoint> Chief::Begin() {
  const std::string previous = owner_ == nullptr ? "" : owner_->previous_run_id();
  Job job = options_.job;
  // `restore: never` applies to the first start of a job, and not to a chief that replaces a lost
  // one.
  if (job.restore == "never" && owner_ != nullptr && !owner_->starts_new_run())
    job.restore = "auto";
  MUSTER_RETURN_IF_ERROR(CheckUnusedServers(files_, job, options_.cluster.cluster.ps.size()));
  MUSTER_ASSIGN_OR_RETURN(
      PreparedStart prepared,
      PrepareStart(
          files_, job, previous, [this] { return owner_->Check(); },
          [this] { return director_ != nullptr && director_->MayHaveState(); }));
  const StartDecision& decision = prepared.decision;
  LogInfo("{}", decision.reason);
  if (decision.kind == StartKind::kFinished) {
    if (coordinator_ != nullptr) coordinator_->EndFinished(decision.reason);
    return StartingPoint{.finished = true};
  }
  if (owner_ != nullptr) {
    MUSTER_RETURN_IF_ERROR(
        OpenStore(decision.kind == StartKind::kRestore ? prepared.snapshot->state.step : -1));
  }
  // A process that trains alone forms no generation, so the run begins here.
  if (owner_ != nullptr && coordinator_ == nullptr)
    MUSTER_RETURN_IF_ERROR(owner_->RecordRun(owner_->run_id(), owner_->term()));
  const bool has_begun = !previous.empty() && previous == RunId();
  MUSTER_RETURN_IF_ERROR(publisher_->Begin(decision.continues, has_begun));
  begun_ = true;
  system_ = std::make_unique<SystemSummaries>(SystemSummaryOptions{
      .stats = [this] { return Stats(); },
      .step = [this] { return step_.load(); },
      .write = [this](const ScalarReport& report) { publisher_->OnScalars("system", report); }});
  if (owner_ != nullptr && prepared.snapshot) {
    const checkpoint::TrainingState& state = prepared.snapshot->state;
    const bool last = TrainedToItsEnd(options_.job, state.step, state.epoch);
    if (last && coordinator_ != nullptr) coordinator_->EndAfterLastStep();
    // Announces the checkpoint from which training resumes, if it is in this model_dir.
    const int64_t step = state.step;
    const std::vector<int64_t> own = checkpoints_->store()->steps();
    const std::string name = checkpoint::CheckpointName(step);
    if (std::find(own.begin(), own.end(), step) != own.end())
      Announce(step, name, options_.job.model_dir + "/checkpoints/" + name, last);
  }
  return StartingPoint{.restore = std::move(prepared.snapshot), .may_be_held = !previous.empty()};
}

void Chief::OnStart(const StartReport& report) {
  LogStart(report, director_ != nullptr && report.world_size > 1);
}

// Triggers planned faults on a chief that computes no steps itself, at the steps of the workers.
void Chief::OnStep(const StepReport& report) {
  step_ = report.step;
  if (director_ == nullptr || options_.faults == nullptr) return;
  try {
    options_.faults->At(Phase::kForward, report.step);
  } catch (const std::exception& error) {
    EndJob(ProgramError(error.what()));
  }
}

void Chief::OnSuperseded(const absl::Status& superseded) {
  {
    absl::MutexLock lock(&mu_);
    if (to_end_ != nullptr) {
      StopWaiting();
      return to_end_->End(VerdictOf(superseded, self_));
    }
    if (ended_) return;
  }
  // There are no members to inform. The process exits at once, so that it writes nothing more.
  LogError("{}", Message(superseded));
  FlushLog();
  _exit(static_cast<int>(ExitCodeOf(superseded)));
}

absl::Status Chief::Direct(const DirectorStart& start) {
  // The coordinator may end the job, for example after a failure of the program or the loss of a
  // ps.
  std::thread watch([this] {
    const Verdict verdict = coordinator_->WaitForEnd();
    director_->Abort(StatusOf(verdict, self_, /*is_chief=*/true));
  });
  const absl::Status result = director_->Run(start);
  EndJob(result);
  watch.join();
  return result;
}

void Chief::EndJob(const absl::Status& result) {
  if (coordinator_ != nullptr) coordinator_->End(VerdictOf(result, self_));
}

absl::Status Chief::End(const absl::Status& result) {
  // The training thread calls this, and so does a watchdog if the program hangs. The second caller
  // waits until the first has written the result. Coordinator::Wait() bounds this wait.
  absl::MutexLock ending(&ending_);
  if (verdict_) return *verdict_;
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  absl::Status status = result;
  Verdict verdict;
  // Ends the job for a failure that no Member reported. Has no effect if the job has already
  // ended.
  if (coordinator_ != nullptr && !result.ok()) coordinator_->End(VerdictOf(result, self_));
  // Writes to the model_dir, which may hang. The verdict is on its way, and members are still
  // connected.
  system_.reset();
  if (coordinator_ != nullptr) {
    verdict = coordinator_->Wait();
    status = StatusOf(verdict, self_, /*is_chief=*/true);
  }
  // Finishes the saves in progress, whatever the verdict.
  if (checkpoints_ != nullptr) (void)checkpoints_->Drain();
  if (evaluation_ != nullptr && status.ok() && begun_) {
    evaluation_->AwaitFinal();
    // The final metrics may have changed the best checkpoint.
    if (checkpoints_ != nullptr) (void)checkpoints_->Drain();
  }
  if (director_ != nullptr) publisher_->SetParameterServer(ToJson(director_->record()));
  const CheckpointRecord record =
      checkpoints_ != nullptr ? checkpoints_->Record() : CheckpointRecord();
  if (const absl::Status written = publisher_->Finish(status, record);
      absl::IsAborted(written) && status.ok())
    status = written;  // Another chief now continues the run.
  else if (!written.ok())
    LogWarning("{}", Message(written));
  else if (owner_ != nullptr && begun_)
    LogInfo("result in {}/result.json", options_.job.model_dir);
  if (evaluation_ != nullptr) evaluation_->End(verdict);
  if (flight_ != nullptr) flight_->Drain(kFlightDrain);
  status_.ShowEnd(VerdictOf(status, self_));
  if (trace_ != nullptr) trace_->Close(kTraceDrain);
  verdict_ = status;
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options) {
  return StartChiefOn(checkpoint::PosixFileSystem(), options);
}

absl::StatusOr<std::unique_ptr<ChiefRole>> StartChiefOn(checkpoint::FileSystem& files,
                                                        const ChiefRoleOptions& options) {
  auto chief = std::make_unique<Chief>(files, options);
  MUSTER_RETURN_IF_ERROR(chief->Start());
  return chief;
}

}  // namespace muster::chief
