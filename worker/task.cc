#include "worker/task.h"

#include <fmt/format.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/cluster/verdict.h"
#include "common/rpc/host.h"
#include "common/train/devices.h"
#include "common/train/trainer.h"
#include "common/transport/address.h"
#include "common/transport/data_listener.h"
#include "worker/formation.h"
#include "worker/member.h"

namespace muster {
namespace {

// How long a process whose job has ended may take to come back from the program's code.
constexpr Duration kGraceAfterVerdict = std::chrono::seconds(3);
// How long a process that failed before it joined tries to tell the chief.
constexpr Duration kTellChief = std::chrono::seconds(10);

// SIGTERM and SIGINT, taken by one thread so that whatever they do is ordinary code. The first one
// asks for a stop, the second one ends the process.
class StopSignals {
 public:
  StopSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // every later thread inherits this
    std::thread([this, signals] { Take(signals); }).detach();
  }
  // From now on a stop is passed on; nullptr: no longer.
  void PassTo(Membership* membership) {
    absl::MutexLock lock(&mutex_);
    membership_ = membership;
    if (asked_ && membership_ != nullptr) membership_->RequestStop();
  }

 private:
  void Take(sigset_t signals) {
    int signal = 0;
    sigwait(&signals, &signal);
    LogInfo(
        "{} received: stopping after the step under way; a second one ends this process at once",
        signal == SIGTERM ? "SIGTERM" : "SIGINT");
    {
      absl::MutexLock lock(&mutex_);
      asked_ = true;
      if (membership_ != nullptr) membership_->RequestStop();
    }
    sigwait(&signals, &signal);
    _exit(static_cast<int>(ExitCode::kPreempted));
  }

  absl::Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  Membership* membership_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

struct Arguments {
  std::string job;
  std::vector<std::string> overrides;
};

// nullopt: the process is done (help was asked for, or the arguments are wrong), `*code` is its
// exit code.
std::optional<Arguments> ParseArguments(int argc, char** argv, TaskType binary, int* code) {
  Arguments arguments;
  CLI::App app(
      fmt::format("{}: trains a job as the task that TF_CONFIG names, alone where it names none.",
                  BinaryName(binary)));
  app.add_option("--job", arguments.job, "Job file (JSON, comments allowed)")->required();
  app.add_option("--set", arguments.overrides,
                 "Override a key of the job: dotted.key=value, repeatable")
      ->allow_extra_args(false);
  app.set_version_flag("--version", MUSTER_VERSION);
  try {
    app.parse(argc, argv);
    return arguments;
  } catch (const CLI::ParseError& error) {
    *code = app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kConfiguration);
    return std::nullopt;
  }
}

std::map<std::string, std::string> Versions() {
  return {{"muster", MUSTER_VERSION}, {"libtorch", TORCH_VERSION}};
}

// Ends the process when the job is over and the program does not come back: a program may sit in
// code of its own, where no communicator wakes it.
void EndSoon(const Verdict& verdict, const std::string& self, bool is_chief) {
  std::thread([=] {
    std::this_thread::sleep_for(kGraceAfterVerdict);
    LogError("{}", FinalLine(verdict, self, is_chief));
    LogError("the program did not come back within {} s of that: ending this process",
             Seconds(kGraceAfterVerdict));
    _exit(static_cast<int>(verdict.code));
  }).detach();
}

class Task {
 public:
  Task(const TaskParts& parts, StopSignals* signals) : parts_(parts), signals_(signals) {}

  // Everything after the command line. The message of an error is this process's last line.
  absl::Status Run(const Arguments& arguments);

 private:
  absl::Status ReadConfiguration(const Arguments& arguments);
  absl::Status Prepare();
  absl::Status Train();
  absl::Status TrainAsMember();
  absl::StatusOr<std::unique_ptr<transport::DataListener>> Listen();
  MemberOptions OptionsOfMember(transport::DataListener* listener);
  // A failure of this process's own, before it had a Member to tell: tells the chief, and words the
  // last line.
  absl::Status FailEarly(const absl::Status& failure);

  bool alone() const { return cluster_.local(); }
  bool is_chief() const { return cluster_.role() == TaskType::kChief; }
  std::string self() const { return alone() ? "" : cluster_.task->ToString(); }
  std::string chief_address() const {
    return cluster_.cluster.AddressOf(*cluster_.chief()).ToString();
  }

  rpc::TlsFiles tls() const {
    return {job_.tls.enabled, job_.tls.certificate, job_.tls.key, job_.tls.authority};
  }

  const TaskParts& parts_;
  StopSignals* const signals_;
  ClusterConfig cluster_;
  Job job_;
  std::unique_ptr<ChiefRole> chief_;
  std::vector<c10::Device> devices_;
  std::unique_ptr<Trainer> trainer_;
};

absl::Status Task::ReadConfiguration(const Arguments& arguments) {
  MUSTER_ASSIGN_OR_RETURN(cluster_, ClusterFromEnvironment(ProcessEnvironment()));
  InitLogging(alone() ? "" : cluster_.Who());
  for (const std::string& warning : cluster_.warnings) LogWarning("{}", warning);
  MUSTER_RETURN_IF_ERROR(CheckBinary(cluster_, parts_.binary));
  MUSTER_ASSIGN_OR_RETURN(job_, LoadJob(arguments.job, arguments.overrides));
  MUSTER_ASSIGN_OR_RETURN(job_.strategy, StrategyFor(job_, cluster_));
  if (*job_.strategy == StrategyKind::kParameterServer ||
      *job_.strategy == StrategyKind::kCentralStorage) {
    return ConfigurationError(
        fmt::format("strategy is {}: this version trains with multi_worker_mirrored, mirrored and "
                    "one_device only",
                    StrategyName(*job_.strategy)));
  }
  return absl::OkStatus();
}

absl::Status Task::Prepare() {
  MUSTER_ASSIGN_OR_RETURN(devices_, ParseDevices(job_.devices));
  if (*job_.strategy == StrategyKind::kOneDevice && devices_.size() > 1) {
    return ConfigurationError(
        fmt::format("strategy is one_device, but devices is \"{}\", which are {}", job_.devices,
                    devices_.size()));
  }
  MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, parts_.find_program(job_.program));
  TrainerOptions options{job_, std::move(program), devices_, {}};
  if (chief_ != nullptr) options.observers = chief_->observers();
  MUSTER_ASSIGN_OR_RETURN(trainer_, Trainer::Make(std::move(options)));
  return absl::OkStatus();
}

absl::Status Task::FailEarly(const absl::Status& failure) {
  if (alone() || chief_ != nullptr) return failure;  // the chief's half words it
  if (!is_chief() && cluster_.chief()) {
    // The chief waits for this task: it has to know, so that the job's verdict names the reason.
    EarlyFailure report;
    report.task = self();
    report.chief_address = chief_address();
    report.cluster_digest = cluster_.cluster.Digest();
    report.failure = failure;
    report.channel.tls = tls();
    if (const absl::Status told = ReportFailureTo(report, kTellChief); !told.ok())
      LogWarning("could not tell the chief: {}", Message(told));
  }
  Verdict verdict;
  verdict.code = ExitCodeOf(failure);
  verdict.task = self();
  verdict.host = rpc::ThisHost().name;
  verdict.message = Message(failure);
  return StatusOf(verdict, self(), is_chief());
}

absl::StatusOr<std::unique_ptr<transport::DataListener>> Task::Listen() {
  transport::ListenerOptions options;
  if (job_.collective.interface.empty()) {
    // The interface of the control connection.
    MUSTER_ASSIGN_OR_RETURN(options.bind_address,
                            rpc::WaitForLocalAddressTowards(chief_address(), job_.timeouts.join));
    LogInfo("data connections on {}, the way to the chief", options.bind_address);
  } else {
    MUSTER_ASSIGN_OR_RETURN(options.bind_address,
                            transport::InterfaceAddress(job_.collective.interface));
    LogInfo("data connections on {}, interface {}", options.bind_address,
            job_.collective.interface);
  }
  return transport::DataListener::Create(options);
}

MemberOptions Task::OptionsOfMember(transport::DataListener* listener) {
  MemberOptions options;
  options.task = self();
  options.chief_task = cluster_.chief()->ToString();
  options.chief_address = chief_address();
  options.is_chief = is_chief();
  options.cluster_digest = cluster_.cluster.Digest();
  options.cluster = cluster_.cluster.ToJson().dump();
  options.job = JobToJson(job_).dump();
  options.versions = Versions();
  options.num_replicas = trainer_->num_replicas();
  options.devices = job_.devices;
  options.data_address = listener->address();
  options.channel.tls = tls();
  const Timeouts& timeouts = job_.timeouts;
  options.timeouts.join = timeouts.join;
  options.timeouts.resume = timeouts.resume;
  options.timeouts.heartbeat = timeouts.heartbeat;
  options.timeouts.formation = timeouts.formation;
  options.timeouts.collective = timeouts.collective;
  options.form = FormationOver(listener, devices_, job_.collective, job_.timeouts.collective);
  options.on_verdict = [self = self(), chief = is_chief()](const Verdict& verdict) {
    if (verdict.code != ExitCode::kDone) EndSoon(verdict, self, chief);
  };
  return options;
}

absl::Status Task::TrainAsMember() {
  absl::StatusOr<std::unique_ptr<transport::DataListener>> listener = Listen();
  if (!listener.ok()) return FailEarly(listener.status());
  const std::unique_ptr<Member> member = Member::Make(OptionsOfMember(listener->get()));
  signals_->PassTo(member.get());
  const absl::Status result = trainer_->Run(member.get());
  signals_->PassTo(nullptr);
  if (result.ok()) return result;
  return absl::Status(result.code(), member->FinalLine(result));
}

absl::Status Task::Train() {
  if (!alone()) return TrainAsMember();
  const std::unique_ptr<Membership> membership = MakeLocalMembership(
      trainer_->num_replicas(), job_.timeouts.collective, CudaIndices(devices_));
  signals_->PassTo(membership.get());
  const absl::Status result = trainer_->Run(membership.get());
  signals_->PassTo(nullptr);
  return result;
}

absl::Status Task::Run(const Arguments& arguments) {
  absl::Status result = ReadConfiguration(arguments);
  if (result.ok() && is_chief()) {
    auto chief = parts_.start_chief({cluster_, job_, Versions()});
    if (chief.ok()) chief_ = *std::move(chief);
    result = chief.status();
  }
  if (result.ok()) result = Prepare();
  result = result.ok() ? Train() : FailEarly(result);
  return chief_ == nullptr ? result : chief_->End(result);
}

}  // namespace

int RunTask(int argc, char** argv, const TaskParts& parts) {
  InitLogging("");
  int code = 0;
  const std::optional<Arguments> arguments = ParseArguments(argc, argv, parts.binary, &code);
  if (!arguments) return code;
  StopSignals signals;
  absl::Status result;
  {
    Task task(parts, &signals);
    result = task.Run(*arguments);
  }
  if (!result.ok()) LogError("{}", Message(result));
  spdlog::default_logger()->flush();
  // Static destructors of libraries may wait for threads that a failed job has left behind.
  std::fflush(nullptr);
  _exit(static_cast<int>(ExitCodeOf(result)));
}

}  // namespace muster
