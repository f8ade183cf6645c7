#include "deploy/hosts/ssh_processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/process/restarts.h"
#include "common/base/random_name.h"
#include "common/base/wait.h"
#include "common/cluster/task.h"
#include "deploy/hosts/archive.h"
#include "deploy/hosts/host_connection.h"
#include "deploy/hosts/local_command.h"
#include "deploy/hosts/messages.h"
#include "deploy/hosts/names.h"
#include "deploy/hosts/ssh_command.h"

namespace muster::hosts {
namespace {

using launcher::ExitReport;
using launcher::PlannedTask;
using launcher::SignalQueue;
using Stream = launcher::Console::Stream;

// Timeout for the hosts to reserve ports and to list their GPUs.
constexpr Duration kPrepareLimit = std::chrono::seconds(60);
// Timeout for the hosts to end their tasks at the end of the launch.
constexpr Duration kCloseLimit = std::chrono::seconds(8);

// Above this size in bytes, the launcher logs that it copies the archive.
constexpr int64_t kLarge = 10'000'000;

struct RemoteTask {
  size_t host = 0;
  bool running = false;
  pid_t pid = 0;
  std::optional<ExitReport> ended;  // Set until Reap returns it.
};

// Sends the pings on a thread of its own, because the main thread may block on a slow disk when it
// writes the tasks' logs.
class Pings {
 public:
  ~Pings() {
    ending_.Notify();
    if (thread_.joinable()) thread_.join();
  }
  // REQUIRES: the connections outlive this object.
  void Start(std::vector<HostConnection*> connections) {
    thread_ = std::thread([this, connections = std::move(connections)] {
      while (!ending_.WaitFor(std::chrono::seconds(1)))
        for (HostConnection* connection : connections) connection->Ping();
    });
  }

 private:
  Notification ending_;
  std::thread thread_;
};

class SshProcesses final : public launcher::Processes, public ConnectionListener {
 public:
  SshProcesses(HostsRequest request, launcher::ProcessOutput& output)
      : request_(std::move(request)), output_(output) {}
  ~SshProcesses() override;

  absl::StatusOr<std::vector<PlannedTask>> Plan(SignalQueue& signals) override;
  absl::Status Start(size_t task, int restarts) override;
  pid_t Pid(size_t task) const override { return tasks_[task].pid; }
  void Signal(size_t task, int signal) override;
  void SetSuspended(bool suspended) override {
    for (const auto& connection : connections_) connection->SetSuspended(suspended);
  }
  std::optional<ExitReport> Reap(size_t task) override;
  size_t AddPolled(bool output, std::vector<pollfd>* polled) const override;
  void Read(const pollfd* polled) override;
  std::optional<MonotonicTime> Tick(MonotonicTime now) override;
  Json Result() const override { return result_; }

 private:
  absl::Status MakeControlFolder();
  absl::Status Connect(const TarArchive* archive, SignalQueue& signals);
  absl::Status Prepare(SignalQueue& signals);
  // Blocks until `done` returns true. Returns Preempted after a stop signal, the status of a lost
  // connection, or DeadlinePassed after `limit`.
  template <typename Done>
  absl::Status WaitFor(Done done, std::optional<MonotonicTime> limit, SignalQueue& signals);
  absl::Status DivideGpus();
  absl::Status GiveAddresses();
  void Announce(const TarArchive* archive);
  std::string TasksOn(size_t host) const;

  void OnMessage(size_t host, const Json& message) override;
  void OnTaskLine(size_t host, const TaskLine& line) override;
  void OnRemark(size_t host, std::string_view line) override;
  void OnLost(size_t host) override;
  absl::Status Handle(size_t host, const std::string& key, const Json& value);
  RemoteTask* TaskOn(size_t host, size_t task);

  const HostsRequest request_;
  launcher::ProcessOutput& output_;
  std::string control_;             // The folder of the sockets of ssh.
  std::string folder_;              // The folder of the tasks, as text for a shell.
  std::vector<std::string> names_;  // The hosts' names in the cluster spec.
  std::vector<std::unique_ptr<HostConnection>> connections_;
  std::optional<Pings> pings_;
  std::vector<std::optional<Prepared>> prepared_;
  std::vector<PlannedTask> plan_;
  std::vector<RemoteTask> tasks_;
  std::vector<std::optional<std::string>> visible_gpus_;  // By task.
  bool planned_ = false;
  bool killed_ = false;  // The launcher has sent a SIGKILL.
  Json result_;
};

SshProcesses::~SshProcesses() {
  pings_.reset();
  // run-tasks ends the tasks of its host when its input is closed.
  for (const auto& connection : connections_) connection->Close();
  const MonotonicTime limit = Clock::now() + kCloseLimit;
  const auto all_ended = [this] {
    bool ended = true;
    for (const auto& connection : connections_) {
      // Read the output, or else a host that still writes would block.
      std::vector<pollfd> polled;
      connection->AddPolled(true, &polled);
      if (poll(polled.data(), polled.size(), 0) > 0) connection->Read(polled.data());
      ended = connection->Ended() && ended;
    }
    return ended;
  };
  planned_ = false;  // Suppresses further output.
  while (!all_ended() && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  connections_.clear();
  std::error_code error;
  if (!control_.empty()) std::filesystem::remove_all(control_, error);
}

absl::StatusOr<std::vector<PlannedTask>> SshProcesses::Plan(SignalQueue& signals) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                          PlaceTasks(request_.size, request_.hosts));
  plan_ = launcher::PlanCluster(request_.size, std::vector<int>(places.size(), 1));
  for (const size_t host : places) tasks_.push_back({host, false, 0, std::nullopt});
  MUSTER_ASSIGN_OR_RETURN(names_, NamesInCluster(request_.ssh, request_.hosts, signals));
  std::optional<TarArchive> archive;
  if (!request_.copy.empty()) {
    MUSTER_ASSIGN_OR_RETURN(archive, MakeArchive(request_.copy, signals));
  }
  const TarArchive* copied = archive ? &*archive : nullptr;
  if (archive && archive->bytes > kLarge)
    output_.Say(fmt::format("copying {:.0f} MB to each host that does not have it",
                            static_cast<double>(archive->bytes) / 1e6));
  MUSTER_RETURN_IF_ERROR(MakeControlFolder());
  MUSTER_RETURN_IF_ERROR(Connect(copied, signals));
  MUSTER_RETURN_IF_ERROR(Prepare(signals));
  MUSTER_RETURN_IF_ERROR(DivideGpus());
  MUSTER_RETURN_IF_ERROR(GiveAddresses());
  Announce(copied);
  planned_ = true;
  return plan_;
}

absl::Status SshProcesses::MakeControlFolder() {
  // The path of a Unix socket is limited to about 108 bytes, and ssh appends a suffix to it before
  // it renames the socket.
  constexpr size_t kLongestFolder = 60;
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error).string();
  if (folder.empty() || folder.size() > kLongestFolder) folder = "/tmp";
  folder += "/muster-ssh-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    return ConfigurationError(fmt::format("cannot make the folder {}", folder));
  control_ = folder;
  return absl::OkStatus();
}

absl::Status SshProcesses::Connect(const TarArchive* archive, SignalQueue& signals) {
  std::string unpack;
  if (!request_.folder.empty()) {
    folder_ = NamedFolder(request_.folder);
    if (archive != nullptr) unpack = UnpackOverCommand(request_.folder);
  } else if (archive != nullptr) {
    folder_ = ContentFolder(archive->digest);
    unpack = UnpackOnceCommand(archive->digest);
  } else {
    std::error_code error;
    folder_ = NamedFolder(std::filesystem::current_path(error).string());
  }
  const std::string launch = RandomName();
  for (size_t i = 0; i < request_.hosts.size(); ++i) {
    ConnectionOptions options;
    options.ssh = request_.ssh;
    options.target = request_.hosts[i].target;
    options.control = fmt::format("{}/{}", control_, i);
    options.muster = request_.bin_dir + "/muster";
    // Several entries may name the same host, and each has its own run-tasks.
    options.start_line = StartLine(folder_, options.muster, fmt::format("{}-{}", launch, i));
    options.unpack = unpack;
    if (archive != nullptr) options.archive = archive->path;
    connections_.push_back(std::make_unique<HostConnection>(std::move(options), i, *this));
    MUSTER_RETURN_IF_ERROR(connections_.back()->Open());
  }
  std::vector<HostConnection*> pinged;
  for (const auto& connection : connections_) pinged.push_back(connection.get());
  pings_.emplace().Start(std::move(pinged));
  const auto all = [this](bool (HostConnection::*reached)() const) {
    return [this, reached] {
      return std::all_of(connections_.begin(), connections_.end(),
                         [&](const auto& connection) { return ((*connection).*reached)(); });
    };
  };
  // No limits: each connection has its own. No program starts before the last host has the files,
  // because a host with the same file system replaces the program while it unpacks.
  MUSTER_RETURN_IF_ERROR(WaitFor(all(&HostConnection::copied), std::nullopt, signals));
  for (const auto& connection : connections_) connection->StartAfterCopy();
  return WaitFor(all(&HostConnection::ready), std::nullopt, signals);
}

template <typename Done>
absl::Status SshProcesses::WaitFor(Done done, std::optional<MonotonicTime> limit,
                                   SignalQueue& signals) {
  constexpr Duration kLookEvery = std::chrono::milliseconds(200);
  while (true) {
    for (const auto& connection : connections_) {
      connection->Tick(Clock::now());
      if (connection->lost()) return connection->status();
    }
    if (done()) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(CheckSignals(signals));
    if (limit && Clock::now() > *limit) return DeadlinePassed("no answer");
    std::vector<pollfd> polled = {{signals.fd(), POLLIN, 0}};
    AddPolled(true, &polled);
    if (poll(polled.data(), polled.size(), static_cast<int>(Milliseconds(kLookEvery))) > 0)
      Read(polled.data() + 1);
  }
}

absl::Status SshProcesses::Prepare(SignalQueue& signals) {
  prepared_.resize(connections_.size());
  for (size_t i = 0; i < connections_.size(); ++i) {
    PrepareRequest request;
    request.ports = static_cast<int>(
        std::count_if(tasks_.begin(), tasks_.end(), [&](const auto& t) { return t.host == i; }));
    request.gpus = !request_.gpus.devices.starts_with("cpu");
    connections_[i]->Send(ToJson(request));
  }
  const absl::Status status = WaitFor(
      [this] {
        return std::all_of(prepared_.begin(), prepared_.end(),
                           [](const auto& prepared) { return prepared.has_value(); });
      },
      Clock::now() + kPrepareLimit, signals);
  if (absl::IsDeadlineExceeded(status)) {
    std::vector<std::string> silent;
    for (size_t i = 0; i < connections_.size(); ++i)
      if (!prepared_[i]) silent.push_back(connections_[i]->target());
    return DeadlinePassed(fmt::format("{}: no answer of muster run-tasks for {:.0f} s",
                                      fmt::join(silent, ", "), Seconds(kPrepareLimit)));
  }
  MUSTER_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!prepared_[i]->error.empty())
      return ConfigurationError(
          fmt::format("{}: {}", connections_[i]->target(), prepared_[i]->error));
  }
  return absl::OkStatus();
}

absl::Status SshProcesses::DivideGpus() {
  visible_gpus_.resize(tasks_.size());
  for (size_t host = 0; host < connections_.size(); ++host) {
    std::vector<PlannedTask> here;
    std::vector<size_t> indices;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].host != host) continue;
      here.push_back(plan_[i]);
      indices.push_back(i);
    }
    if (here.empty()) continue;
    absl::StatusOr<launcher::GpuPlan> gpus =
        launcher::AssignGpus(prepared_[host]->gpus, here, request_.gpus);
    if (!gpus.ok()) return Annotate(gpus.status(), connections_[host]->target() + ": ");
    if (!gpus->note.empty()) OnRemark(host, gpus->note);
    for (size_t i = 0; i < indices.size() && i < gpus->visible.size(); ++i)
      visible_gpus_[indices[i]] = gpus->visible[i];
  }
  return absl::OkStatus();
}

absl::Status SshProcesses::GiveAddresses() {
  std::vector<size_t> used(connections_.size());
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const size_t host = tasks_[i].host;
    const std::vector<int>& ports = prepared_[host]->ports;
    if (used[host] >= ports.size())
      return PeerLost(fmt::format("{}: reserved too few ports", connections_[host]->target()));
    plan_[i].address = Address{names_[host], ports[used[host]++]}.ToString();
  }
  // The marks of the ports disappear with run-tasks, so a new one must reserve the ports again.
  for (size_t host = 0; host < connections_.size(); ++host)
    connections_[host]->SetFirst(ToJson(ReserveRequest{prepared_[host]->ports}));
  return absl::OkStatus();
}

std::string SshProcesses::TasksOn(size_t host) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tasks_.size(); ++i)
    if (tasks_[i].host == host) names.push_back(plan_[i].Name());
  return fmt::format("{}", fmt::join(names, ", "));
}

void SshProcesses::Announce(const TarArchive* archive) {
  for (size_t host = 0; host < connections_.size(); ++host) {
    const std::string tasks = TasksOn(host);
    output_.Say(
        fmt::format("{}: {}", connections_[host]->target(), tasks.empty() ? "no task" : tasks));
  }
  if (archive != nullptr)
    output_.Say(fmt::format(
        "the files of --copy ({:.1f} MB) are in {} on each host",
        static_cast<double>(archive->bytes) / 1e6,
        request_.folder.empty() ? "~/.cache/muster/hosts/" + archive->digest : request_.folder));
}

absl::Status SshProcesses::Start(size_t task, int restarts) {
  RemoteTask& remote = tasks_[task];
  HostConnection& connection = *connections_[remote.host];
  StartRequest request;
  request.task = static_cast<int>(task);
  request.arguments = {request_.bin_dir + "/" + plan_[task].Binary()};
  request.arguments.insert(request.arguments.end(), request_.arguments.begin(),
                           request_.arguments.end());
  request.environment = request_.environment;
  request.environment["TF_CONFIG"] = launcher::TfConfigFor(plan_, plan_[task]);
  if (restarts > 0) request.environment[kRestartsVariable] = std::to_string(restarts);
  if (visible_gpus_[task]) request.environment["CUDA_VISIBLE_DEVICES"] = *visible_gpus_[task];
  request.key = request_.key;
  if (plan_[task].lead && !request_.model_dir.empty())
    request.result = request_.model_dir + "/result.json";
  const Json message = ToJson(request);
  if (Dump(message).size() >= kLongestMessage)
    return ConfigurationError(
        fmt::format("the arguments and the environment of {} have more than {} MiB",
                    plan_[task].Name(), kLongestMessage / (1024 * 1024)));
  if (connection.lost()) {
    output_.Say(fmt::format("connecting to {} again", connection.target()));
    MUSTER_RETURN_IF_ERROR(connection.Open());
  }
  remote.running = true;
  remote.pid = 0;
  remote.ended.reset();
  connection.Send(message);
  return absl::OkStatus();
}

void SshProcesses::Signal(size_t task, int signal) {
  if (task >= tasks_.size() || !tasks_[task].running) return;
  RemoteTask& remote = tasks_[task];
  HostConnection& connection = *connections_[remote.host];
  killed_ = killed_ || signal == SIGKILL;
  if (connection.ready())
    return connection.Send(ToJson(SignalRequest{static_cast<int>(task), signal}));
  if (signal != SIGKILL && signal != SIGTERM && signal != SIGINT) return;
  // The host is not connected, and the start of its tasks is pending.
  connection.DropWaiting();
  for (RemoteTask& other : tasks_) {
    if (other.host != remote.host || !other.running) continue;
    other.running = false;
    other.ended = ExitReport{128 + signal, signal};
  }
}

std::optional<ExitReport> SshProcesses::Reap(size_t task) {
  std::optional<ExitReport> ended;
  tasks_[task].ended.swap(ended);
  return ended;
}

size_t SshProcesses::AddPolled(bool output, std::vector<pollfd>* polled) const {
  // run-tasks sends the end of a killed task after its output, so the output must be read.
  for (const auto& connection : connections_) connection->AddPolled(output || killed_, polled);
  return connections_.size() * HostConnection::kPolled;
}

void SshProcesses::Read(const pollfd* polled) {
  for (const auto& connection : connections_) {
    connection->Read(polled);
    polled += HostConnection::kPolled;
  }
}

std::optional<MonotonicTime> SshProcesses::Tick(MonotonicTime now) {
  std::optional<MonotonicTime> next;
  for (const auto& connection : connections_) {
    if (const auto due = connection->Tick(now)) next = std::min(next.value_or(*due), *due);
  }
  return next;
}

RemoteTask* SshProcesses::TaskOn(size_t host, size_t task) {
  return task < tasks_.size() && tasks_[task].host == host && tasks_[task].running ? &tasks_[task]
                                                                                   : nullptr;
}

void SshProcesses::OnMessage(size_t host, const Json& message) {
  absl::Status status = ConfigurationError("it is not an object with one key");
  if (message.is_object() && message.size() == 1)
    status = Handle(host, message.begin().key(), message.begin().value());
  if (!status.ok()) OnRemark(host, fmt::format("sent a message, but {}", Message(status)));
}

absl::Status SshProcesses::Handle(size_t host, const std::string& key, const Json& value) {
  if (key == "prepared") {
    MUSTER_ASSIGN_OR_RETURN(prepared_.at(host), PreparedFrom(value));
  } else if (key == "started") {
    MUSTER_ASSIGN_OR_RETURN(const Started started, StartedFrom(value));
    if (RemoteTask* task = TaskOn(host, static_cast<size_t>(started.task)))
      task->pid = static_cast<pid_t>(started.pid);
  } else if (key == "ended") {
    MUSTER_ASSIGN_OR_RETURN(const Ended ended, EndedFrom(value));
    const auto index = static_cast<size_t>(ended.task);
    RemoteTask* task = TaskOn(host, index);
    if (task == nullptr) return absl::OkStatus();
    task->running = false;
    task->ended = ended.report;
    if (plan_[index].lead && ended.result.is_object()) result_ = ended.result;
  } else {
    return ConfigurationError(fmt::format("its key \"{}\" is unknown", key));
  }
  return absl::OkStatus();
}

void SshProcesses::OnTaskLine(size_t host, const TaskLine& line) {
  if (!planned_ || TaskOn(host, line.task) == nullptr) return;
  if (line.kind == 'p') return output_.OnProgress(line.task, line.text);
  output_.OnLine(line.task, line.kind == 'o' ? Stream::kOut : Stream::kErr, line.text);
}

void SshProcesses::OnRemark(size_t host, std::string_view line) {
  output_.Say(fmt::format("{}: {}", connections_[host]->target(), line));
}

void SshProcesses::OnLost(size_t host) {
  if (!planned_) return;  // The launch does not start: Plan returns the status.
  output_.Say(Message(connections_[host]->status()));
  connections_[host]->DropWaiting();
  for (RemoteTask& task : tasks_) {
    if (task.host != host || !task.running) continue;
    task.running = false;
    task.ended =
        ExitReport{static_cast<int>(ExitCode::kRetryable), 0, connections_[host]->target()};
  }
}

}  // namespace

std::unique_ptr<launcher::Processes> MakeSshProcesses(HostsRequest request,
                                                      launcher::ProcessOutput& output) {
  return std::make_unique<SshProcesses>(std::move(request), output);
}

}  // namespace muster::hosts
