#include "ps/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/base/logging.h"
#include "common/base/process/fatal.h"
#include "common/base/process/restarts.h"
#include "common/base/process/service_manager.h"
#include "common/base/wait.h"
#include "common/flight/spans.h"
#include "common/job/job_security.h"
#include "common/process/data_port.h"
#include "common/process/task_identity.h"
#include "common/process/task_process.h"
#include "common/rpc/server/server.h"
#include "common/telemetry/task_telemetry.h"
#include "muster/version.h"

namespace muster::ps {
namespace {

// Limit for this process's servers to close after the job has ended.
constexpr Duration kGraceAfterFailure = std::chrono::seconds(5);
// Shorter, because there is nothing to report after a success.
constexpr Duration kGraceAfterEnd = std::chrono::seconds(1);
// How often the number of updates is reported, and how often planned faults check it.
constexpr Duration kReportInterval = std::chrono::seconds(1);
constexpr Duration kLookForFaults = std::chrono::milliseconds(5);

// Reports the number of applied updates to the membership and to planned faults.
class UpdateReporter {
 public:
  // `faults` may be null.
  UpdateReporter(const PsService* service, Faults* faults, PsMembership* membership,
                 TaskMeter* meter)
      : thread_([=, this] { Run(service, faults, membership, meter); }) {}
  ~UpdateReporter() {
    end_.Notify();
    thread_.join();
  }

 private:
  void Run(const PsService* service, Faults* faults, PsMembership* membership, TaskMeter* meter) {
    const Duration interval = faults == nullptr ? kReportInterval : kLookForFaults;
    int64_t reported = 0;
    while (!end_.WaitFor(interval)) {
      const int64_t updates = service->status().updates;
      if (updates == reported) continue;
      meter->EnterPhase(Phase::kUpdate, updates);
      meter->AddUpdates(updates - std::exchange(reported, updates));
      membership->SetUpdates(updates);
      if (faults == nullptr) continue;
      try {
        faults->At(Phase::kForward, updates);
      } catch (const std::exception& error) {
        return membership->ReportFailure(ProgramError(error.what()));
      }
    }
  }

  Notification end_;
  std::thread thread_;
};

class PsTask {
 public:
  PsTask(const PsParts& parts, StopSignals* signals) : parts_(parts), signals_(signals) {}
  ~PsTask() { signals_->SetHandler(nullptr); }

  // Runs the task with parsed arguments. The message of an error is this process's last line.
  absl::Status Run(const TaskArguments& arguments);

 private:
  absl::Status ReadConfiguration(const TaskArguments& arguments);
  absl::Status OpenPorts();
  absl::Status Serve();
  PsMembershipOptions OptionsOfMembership();

  const PsParts& parts_;
  StopSignals* const signals_;
  const std::shared_ptr<SpanRecorder> spans_ = std::make_shared<SpanRecorder>();
  ClusterConfig cluster_;
  Job job_;
  std::unique_ptr<Faults> faults_;  // Null if no faults are planned.
  std::unique_ptr<TaskTelemetry> telemetry_;
  std::unique_ptr<transport::DataListener> listener_;
  std::unique_ptr<PsService> service_;
  std::unique_ptr<rpc::Server> server_;
};

absl::Status PsTask::ReadConfiguration(const TaskArguments& arguments) {
  MUSTER_ASSIGN_OR_RETURN(cluster_, ClusterFromEnvironment(ProcessEnvironment()));
  InitLogging(cluster_.local() ? "ps" : cluster_.Who());
  NameFatalSignals(cluster_.local() ? "muster-ps" : cluster_.task->DisplayName());
  OnUncaught(nullptr, Duration::zero());
  signals_->Start();  // Called after InitLogging, which replaces the logger that Start uses.
  for (const std::string& warning : cluster_.warnings) LogWarning("{}", warning);
  MUSTER_RETURN_IF_ERROR(CheckDescriptors(cluster_));
  MUSTER_RETURN_IF_ERROR(CheckBinary(cluster_, TaskType::kPs));
  MUSTER_RETURN_IF_ERROR(LoadJobOrSecurity(arguments.job, arguments.overrides, &job_));
  UseFileMode(job_);
  MUSTER_ASSIGN_OR_RETURN(job_.strategy, StrategyFor(job_, cluster_));
  MUSTER_ASSIGN_OR_RETURN(faults_, MakeFaults(arguments, cluster_));
  MUSTER_RETURN_IF_ERROR(CheckSupported(job_));
  MUSTER_ASSIGN_OR_RETURN(cluster_.identity, IdentityOfTask(cluster_, job_));
  MUSTER_ASSIGN_OR_RETURN(telemetry_, TaskTelemetry::Start(cluster_, job_, Restarts()));
  return absl::OkStatus();
}

// Opens the ports before this process joins. Earlier calls of the chief return UNAVAILABLE, and
// connections of workers wait.
absl::Status PsTask::OpenPorts() {
  if (faults_ != nullptr) faults_->At(Phase::kStarting, 0);
  MUSTER_ASSIGN_OR_RETURN(transport::ListenerOptions data, DataPortOptions(job_, cluster_, [this] {
                            return signals_->requested();
                          }));
  data.wrap = [traffic = telemetry_->meter()->traffic()](auto stream) {
    return transport::CountBytes(std::move(stream), {traffic, &traffic->tcp});
  };
  if (faults_ != nullptr && parts_.adapt) parts_.adapt(faults_.get(), &data);
  MUSTER_ASSIGN_OR_RETURN(listener_, transport::DataListener::Create(data));
  PsServiceOptions options;
  options.task = cluster_.task->index;
  options.spans = spans_;
  const auto& traffic = telemetry_->meter()->traffic();
  options.shared_memory = {traffic, &traffic->shared_memory};
  options.listener = listener_.get();
  options.chief_silence = LongestChiefSilence(job_.timeouts.heartbeat, job_.timeouts.resume);
  service_ = PsService::Make(options);
  rpc::ServerOptions server;
  server.address = cluster_.cluster.AddressOf(*cluster_.task).ToString();
  server.bind_timeout = job_.timeouts.bind;
  server.identity = cluster_.identity;
  server.may_call = [chief = cluster_.chief()->ToString()](const security::Peer& caller,
                                                           std::string_view) {
    return caller.task == chief;
  };
  MUSTER_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, {service_->service()}));
  LogInfo("this server listens on {}, and on {} for data connections", server.address,
          listener_->address());
  return absl::OkStatus();
}

PsMembershipOptions PsTask::OptionsOfMembership() {
  PsMembershipOptions options{cluster_, job_};
  options.data_address = listener_->address();
  options.versions = {{"muster", MUSTER_VERSION}};
  options.on_verdict = [log = parts_.termination_log](const absl::Status& result) {
    std::thread([=] {
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
  options.termination_log = parts_.termination_log;
  options.stats = [meter = telemetry_->meter()](proto::TaskStats* stats) {
    *stats = meter->Stats();
  };
  options.spans = spans_;
  return options;
}

absl::Status PsTask::Serve() {
  TellReady();
  MUSTER_ASSIGN_OR_RETURN(
      const bool finished,
      parts_.finished_without_chief(cluster_, job_, [this] { return signals_->requested(); }));
  if (finished) return absl::OkStatus();
  const std::unique_ptr<PsMembership> membership = parts_.join(OptionsOfMembership());
  signals_->SetHandler([to = membership.get()] { to->RequestStop(); });
  absl::Status result;
  {
    const UpdateReporter teller(service_.get(), faults_.get(), membership.get(),
                                telemetry_->meter());
    result = membership->WaitForVerdict();
  }
  signals_->SetHandler(nullptr);
  service_->Stop();
  server_->Shutdown(std::chrono::milliseconds(200));
  return result;
}

absl::Status PsTask::Run(const TaskArguments& arguments) {
  absl::Status ready = ReadConfiguration(arguments);
  if (ready.ok() && job_.strategy != StrategyKind::kParameterServer) {
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
  return parts_.fail_early(cluster_, job_, ready, [this] { return signals_->requested(); });
}

}  // namespace

int RunPs(int argc, char** argv, const PsParts& parts) {
  TaskMain main;
  main.about = "muster-ps: serves parameters to the workers of the job that TF_CONFIG names.";
  main.on_signal = "asking the chief to end the job; a second SIGINT ends this process at once";
  main.termination_log = parts.termination_log;
  return RunTaskMain(argc, argv, main, [&](const TaskArguments& arguments, StopSignals* signals) {
    return PsTask(parts, signals).Run(arguments);
  });
}

}  // namespace muster::ps
