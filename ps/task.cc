#include "ps/task.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/logging.h"
#include "common/base/process/service_manager.h"
#include "common/base/wait.h"
#include "common/flight/spans.h"
#include "common/membership/member_options.h"
#include "common/rpc/server/server.h"
#include "muster/version.h"
#include "ps/service.h"

namespace muster::ps {
namespace {

// Limit for this process's servers to close after the job has ended.
constexpr Duration kGraceAfterFailure = std::chrono::seconds(5);
// Shorter, because there is nothing to report after a success.
constexpr Duration kGraceAfterEnd = std::chrono::seconds(1);
// How often the number of updates is reported, and how often planned faults check it.
constexpr Duration kReportInterval = std::chrono::seconds(1);
constexpr Duration kLookForFaults = std::chrono::milliseconds(5);

// Reports the number of applied updates to the chief and to planned faults.
class UpdateReporter {
 public:
  // `faults` may be null.
  UpdateReporter(const PsService* service, Faults* faults, membership::Member* member,
                 TaskMeter* meter)
      : thread_([=, this] { Run(service, faults, member, meter); }) {}
  ~UpdateReporter() {
    end_.Notify();
    thread_.join();
  }
  int64_t reported() const { return reported_; }

 private:
  void Run(const PsService* service, Faults* faults, membership::Member* member, TaskMeter* meter) {
    const Duration interval = faults == nullptr ? kReportInterval : kLookForFaults;
    while (!end_.WaitFor(interval)) {
      const int64_t updates = service->status().updates;
      if (updates == reported_) continue;
      meter->EnterPhase(Phase::kUpdate, updates);
      meter->AddUpdates(updates - reported_.exchange(updates));
      member->SetPhase(Phase::kUpdate, updates);
      if (faults == nullptr) continue;
      try {
        faults->At(Phase::kForward, updates);
      } catch (const std::exception& error) {
        return member->ReportFailure(ProgramError(error.what()));
      }
    }
  }

  std::atomic<int64_t> reported_ = 0;
  Notification end_;
  std::thread thread_;
};

class PsTask {
 public:
  PsTask(const std::string& termination_log, StopSignals* signals)
      : termination_log_(termination_log), signals_(signals) {}
  ~PsTask() { signals_->SetHandler(nullptr); }

  // Runs the task with parsed arguments. The message of an error is this process's last line.
  absl::Status Run(const TaskArguments& arguments);

 private:
  absl::Status ReadConfiguration(const TaskArguments& arguments);
  absl::Status OpenPorts();
  absl::Status Serve();
  // Joins the job. Joins again when a new chief has replaced a lost chief. Blocks until the job has
  // ended.
  absl::Status WaitForVerdict(membership::Member* member);
  membership::MemberOptions OptionsOfMember(Supervisor* supervisor);

  const std::string termination_log_;
  StopSignals* const signals_;
  const std::shared_ptr<SpanRecorder> spans_ = std::make_shared<SpanRecorder>();
  TaskSetup setup_;
  std::unique_ptr<membership::FaultyMember> faulty_member_;  // Null if no faults are planned.
  std::unique_ptr<transport::DataListener> listener_;
  std::unique_ptr<PsService> service_;
  std::unique_ptr<rpc::Server> server_;
};

absl::Status PsTask::ReadConfiguration(const TaskArguments& arguments) {
  MUSTER_RETURN_IF_ERROR(setup_.Read(arguments, TaskType::kPs, signals_));
  if (setup_.faults != nullptr)
    faulty_member_ = std::make_unique<membership::FaultyMember>(setup_.faults.get());
  MUSTER_ASSIGN_OR_RETURN(setup_.job.strategy, StrategyFor(setup_.job, setup_.cluster));
  MUSTER_RETURN_IF_ERROR(CheckSupported(setup_.job));
  return setup_.Start();
}

// Opens the ports before this process joins. Earlier calls of the chief return UNAVAILABLE, and
// connections of workers wait.
absl::Status PsTask::OpenPorts() {
  if (setup_.faults != nullptr) setup_.faults->At(Phase::kStarting, 0);
  MUSTER_ASSIGN_OR_RETURN(listener_, membership::OpenDataPort(setup_, faulty_member_.get(), [this] {
                            return signals_->requested();
                          }));
  PsServiceOptions options;
  options.task = setup_.cluster.task->index;
  options.spans = spans_;
  const auto& traffic = setup_.telemetry->meter()->traffic();
  options.shared_memory = {traffic, &traffic->shared_memory};
  options.listener = listener_.get();
  options.chief_silence =
      LongestChiefSilence(setup_.job.timeouts.heartbeat, setup_.job.timeouts.resume);
  service_ = PsService::Make(options);
  rpc::ServerOptions server;
  server.address = setup_.cluster.cluster.AddressOf(*setup_.cluster.task).ToString();
  server.bind_timeout = setup_.job.timeouts.bind;
  server.identity = setup_.cluster.identity;
  server.may_call = [chief = setup_.cluster.chief()->ToString()](const security::Peer& caller,
                                                                 std::string_view) {
    return caller.task == chief;
  };
  MUSTER_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, {service_->service()}));
  LogInfo("this server listens on {}, and on {} for data connections", server.address,
          listener_->address());
  return absl::OkStatus();
}

membership::MemberOptions PsTask::OptionsOfMember(Supervisor* supervisor) {
  membership::MemberOptions options =
      membership::MemberOptionsOf(setup_, supervisor, termination_log_);
  options.num_replicas = 0;
  options.versions = {{"muster", MUSTER_VERSION}};
  options.data_address = listener_->address();
  options.form = [](const collective::GroupSpec&, const std::vector<int>&,
                    const std::function<bool()>&) {
    return std::vector<std::unique_ptr<collective::Communicator>>();
  };
  options.on_verdict = [log = termination_log_, self = options.task](const Verdict& verdict) {
    std::thread([=, result = StatusOf(verdict, self, /*is_chief=*/false)] {
      const Duration grace = result.ok() ? kGraceAfterEnd : kGraceAfterFailure;
      std::this_thread::sleep_for(grace);
      LogWarning(
          "this server did not close all connections within {} s of the verdict: this process "
          "exits",
          Seconds(grace));
      ReportResult(result, log);
      _exit(static_cast<int>(ExitCodeOf(result)));
    }).detach();
  };
  options.spans = spans_;
  if (faulty_member_ != nullptr) faulty_member_->Adapt(&options);
  return options;
}

absl::Status PsTask::WaitForVerdict(membership::Member* member) {
  const UpdateReporter updates(service_.get(), setup_.faults.get(), member,
                               setup_.telemetry->meter());
  absl::Status result;
  do {
    const absl::StatusOr<Generation> generation = member->NextGeneration(updates.reported());
    result = generation.status();
    if (!result.ok() || generation->job_done) break;
    member->SetPhase(Phase::kUpdate, updates.reported());
    LogInfo("this server is in run {}", generation->run_id);
    result = member->WaitOver();
  } while (!member->JobEnded());
  if (result.ok()) return result;
  return absl::Status(result.code(), member->FinalLine(result));
}

absl::Status PsTask::Serve() {
  TellReady();
  MUSTER_ASSIGN_OR_RETURN(const bool finished, membership::FinishedWithoutChief(setup_, [this] {
                            return signals_->requested();
                          }));
  if (finished) return absl::OkStatus();
  const std::unique_ptr<Supervisor> supervisor = MakeSupervisor();
  const std::unique_ptr<membership::Member> member =
      membership::Member::Make(OptionsOfMember(supervisor.get()));
  signals_->SetHandler([to = member.get()] { to->RequestStop(); });
  const absl::Status result = WaitForVerdict(member.get());
  signals_->SetHandler(nullptr);
  service_->Stop();
  server_->Shutdown(std::chrono::milliseconds(200));
  return result;
}

absl::Status PsTask::Run(const TaskArguments& arguments) {
  absl::Status ready = ReadConfiguration(arguments);
  if (ready.ok() && setup_.job.strategy != StrategyKind::kParameterServer) {
    // Exits with 0, so that no supervisor starts this process again or ends the job because of it.
    LogInfo(
        "parameter_server.max_staleness is 0: the chief and the workers train under "
        "\"multi_worker_mirrored\", and this ps task ends with exit code 0, because it has nothing "
        "to serve");
    return absl::OkStatus();
  }
  if (ready.ok()) ready = OpenPorts();
  if (ready.ok()) return Serve();
  if (absl::IsCancelled(ready)) return ready;
  return membership::FailEarly(setup_, ready, [this] { return signals_->requested(); });
}

}  // namespace

int RunPs(int argc, char** argv, const std::string& termination_log) {
  TaskMain main;
  main.about = "muster-ps: serves parameters to the workers of the job that TF_CONFIG names.";
  main.on_signal = "asking the chief to end the job; a second SIGINT ends this process at once";
  main.termination_log = termination_log;
  return RunTaskMain(argc, argv, main, [&](const TaskArguments& arguments, StopSignals* signals) {
    return PsTask(termination_log, signals).Run(arguments);
  });
}

}  // namespace muster::ps
