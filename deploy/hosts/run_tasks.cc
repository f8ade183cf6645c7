#include "deploy/hosts/run_tasks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "common/base/logging.h"
#include "common/security/run_key.h"
#include "common/telemetry/progress.h"
#include "deploy/hosts/archive.h"
#include "deploy/hosts/messages.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/processes/child.h"
#include "deploy/launcher/processes/lines.h"
#include "deploy/launcher/processes/ports.h"
#include "deploy/launcher/processes/signals.h"

namespace muster::hosts {
namespace {

using launcher::Child;
using launcher::ExitReport;
using launcher::kMaxPacket;
using launcher::LineSplitter;

// Timeout for killed processes to disappear.
constexpr Duration kReapTimeout = std::chrono::seconds(5);
// In bytes. Above this amount of pending output, the tasks' output is not read, so the tasks block.
constexpr size_t kCongested = 1 << 20;
// How often the mark of copied files is renewed.
constexpr Duration kRenewMark = std::chrono::hours(1);

// Binds an abstract Unix socket that marks the launch on this host. The socket disappears with the
// process. Blocks while another process holds the mark, up to a deadline.
absl::StatusOr<Fd> TakeMark(const std::string& launch) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // A leading NUL makes the name abstract.
  const std::string name = "muster-launch-" + launch;
  if (name.size() + 2 > sizeof address.sun_path)
    return ConfigurationError("the name of the launch is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const MonotonicTime limit = Clock::now() + kSilenceLimit + kReapTimeout;
  while (true) {
    Fd mark(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (mark && bind(mark.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return mark;
    if (Clock::now() > limit)
      return PeerLost("an earlier connection of this launch still has tasks on this host");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

struct Task {
  Child child;
  std::string result;  // The path of result.json, or "".
  LineSplitter out, err;
  LineSplitter progress{kMaxPacket};  // Truncated JSON would be invalid.
  bool ended = false;
};

class Runner {
 public:
  explicit Runner(launcher::SignalQueue signals) : signals_(std::move(signals)) {}

  int Run();

 private:
  void Wait();
  void ReadInput();
  void OnMessage(std::string_view line);
  absl::Status Handle(const Json& message);
  absl::Status Prepare(const PrepareRequest& request);
  absl::Status Start(const StartRequest& request);
  void Send(const Json& message) { pending_ += Dump(message) + "\n"; }
  void ReadTask(int index, const pollfd* polled);
  bool ReadSome(int index, Fd* from, LineSplitter* lines, char kind);
  void ReapAll();
  void Reap(int index, const ExitReport& report);
  void EndAll();
  void Flush();

  launcher::SignalQueue signals_;
  LineSplitter input_{kLongestMessage};
  std::map<int, Task> tasks_;
  std::optional<launcher::PortReservation> ports_;
  std::string pending_;  // Output for the launcher.
  // The tasks end if the launcher sends nothing until this time.
  MonotonicTime silence_limit_ = Clock::now() + kSilenceLimit;
  bool ending_ = false;
  // Distinguishes this run's result.json from an older one.
  const std::filesystem::file_time_type started_ = std::filesystem::file_time_type::clock::now();
};

int Runner::Run() {
  MonotonicTime renew_mark = Clock::now() + kRenewMark;
  while (!ending_) {
    if (Clock::now() >= renew_mark) {
      renew_mark = Clock::now() + kRenewMark;
      // There is none unless this is the folder of an archive.
      utimensat(AT_FDCWD, kCopyMark, nullptr, 0);
    }
    ReapAll();
    Flush();
    if (ending_) break;
    Wait();
    if (Clock::now() > silence_limit_) {
      fmt::print(stderr, "muster run-tasks: the launcher was silent for too long\n");
      ending_ = true;
    }
    while (const std::optional<int> signal = signals_.Next())
      if (*signal == SIGTERM || *signal == SIGINT || *signal == SIGHUP) ending_ = true;
  }
  EndAll();
  return 0;
}

void Runner::Wait() {
  const bool read = pending_.size() < kCongested;
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0},
                                {STDIN_FILENO, POLLIN, 0},
                                {pending_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0}};
  const size_t first_task = polled.size();
  std::vector<int> indices;
  for (const auto& [index, task] : tasks_) {
    indices.push_back(index);
    for (const Fd* fd : {&task.child.out, &task.child.err, &task.child.progress})
      polled.push_back({read ? fd->get() : -1, POLLIN, 0});
  }
  if (poll(polled.data(), polled.size(), 1000) <= 0) return;
  for (size_t i = 0; i < indices.size(); ++i) ReadTask(indices[i], &polled[first_task + 3 * i]);
  if (polled[1].revents != 0) ReadInput();
}

void Runner::ReadInput() {
  char bytes[64 * 1024];
  const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) {
    ending_ = true;
    return;
  }
  silence_limit_ = Clock::now() + kSilenceLimit;
  input_.Append({bytes, static_cast<size_t>(size)}, [this](std::string_view line) {
    silence_limit_ = Clock::now() + kSilenceLimit;  // A SuspendRequest may have extended it.
    OnMessage(line);
  });
}

void Runner::OnMessage(std::string_view line) {
  const absl::StatusOr<Json> message = ParseJson(line, "the launcher's message");
  const absl::Status status = message.ok() ? Handle(*message) : message.status();
  if (status.ok()) return;
  fmt::print(stderr, "muster run-tasks: {}\n", Message(status));
  ending_ = true;
}

absl::Status Runner::Handle(const Json& message) {
  if (!message.is_object() || message.size() != 1)
    return ConfigurationError("the launcher's message is not an object with one key");
  const std::string& key = message.begin().key();
  const Json& value = message.begin().value();
  if (key == "ping") return absl::OkStatus();
  if (key == "prepare") {
    MUSTER_ASSIGN_OR_RETURN(const PrepareRequest request, PrepareRequestFrom(value));
    return Prepare(request);
  }
  if (key == "start") {
    MUSTER_ASSIGN_OR_RETURN(const StartRequest request, StartRequestFrom(value));
    if (absl::Status status = Start(request); !status.ok()) {
      AppendTaskLine({'e', static_cast<size_t>(request.task), Message(status)}, &pending_);
      Send(ToJson(Ended{request.task, {static_cast<int>(ExitCodeOf(status)), 0}, {}}));
    }
    return absl::OkStatus();
  }
  if (key == "signal") {
    MUSTER_ASSIGN_OR_RETURN(const SignalRequest request, SignalRequestFrom(value));
    if (const auto task = tasks_.find(request.task); task != tasks_.end())
      task->second.child.Signal(request.signal);
    return absl::OkStatus();
  }
  if (key == "reserve") {
    MUSTER_ASSIGN_OR_RETURN(ReserveRequest request, ReserveRequestFrom(value));
    ports_.emplace(launcher::PortReservation::Of(std::move(request.ports)));
    return absl::OkStatus();
  }
  if (key == "suspend") {
    MUSTER_ASSIGN_OR_RETURN(const SuspendRequest request, SuspendRequestFrom(value));
    silence_limit_ = Clock::now() + std::chrono::seconds(request.seconds);
    return absl::OkStatus();
  }
  return ConfigurationError(fmt::format("the launcher's message is \"{}\"", key));
}

absl::Status Runner::Prepare(const PrepareRequest& request) {
  Prepared prepared;
  const auto fill = [&]() -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(const launcher::PortRange ephemeral, launcher::EphemeralRange());
    MUSTER_ASSIGN_OR_RETURN(
        launcher::PortReservation ports,
        launcher::PortReservation::Reserve(request.ports, ephemeral, std::random_device{}(),
                                           /*on_all_addresses=*/true));
    ports_.emplace(std::move(ports));
    prepared.ports = ports_->ports();
    if (!request.gpus) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(const launcher::GpuInventory inventory, launcher::ReadGpus());
    const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
    MUSTER_ASSIGN_OR_RETURN(
        prepared.gpus,
        launcher::VisibleGpus(
            inventory, variable == nullptr ? std::nullopt : std::optional<std::string>(variable)));
    return absl::OkStatus();
  };
  if (const absl::Status status = fill(); !status.ok()) prepared.error = Message(status);
  Send(ToJson(prepared));
  return absl::OkStatus();
}

absl::Status Runner::Start(const StartRequest& request) {
  launcher::ChildOptions options;
  options.arguments = request.arguments;
  options.environment = request.environment;
  options.environment.emplace(kLogTaskVariable, "0");  // The launcher adds the task's name.
  options.progress_variable = kProgressFdVariable;
  Fd key;
  if (!request.key.empty()) {
    MUSTER_ASSIGN_OR_RETURN(key, security::RunKeyToInherit(request.key));
    options.environment[security::kRunKeyDescriptor] = std::to_string(key.get());
  }
  MUSTER_ASSIGN_OR_RETURN(Child child, Child::Start(options));
  const pid_t pid = child.pid();
  tasks_.erase(request.task);
  tasks_.emplace(request.task, Task{std::move(child), request.result});
  Send(ToJson(Started{request.task, pid}));
  return absl::OkStatus();
}

void Runner::ReadTask(int index, const pollfd* polled) {
  Task& task = tasks_.at(index);
  if (polled[0].revents != 0) ReadSome(index, &task.child.out, &task.out, 'o');
  if (polled[1].revents != 0) ReadSome(index, &task.child.err, &task.err, 'e');
  if (polled[2].revents != 0) ReadSome(index, &task.child.progress, &task.progress, 'p');
}

// Returns false if nothing more can be read now.
bool Runner::ReadSome(int index, Fd* from, LineSplitter* lines, char kind) {
  return launcher::ReadLines(from, lines, [&](std::string_view line) {
    AppendTaskLine({kind, static_cast<size_t>(index), line}, &pending_);
  });
}

void Runner::ReapAll() {
  for (auto& [index, task] : tasks_) {
    if (task.ended) continue;
    if (const std::optional<ExitReport> report = task.child.Reap()) Reap(index, *report);
  }
}

void Runner::Reap(int index, const ExitReport& report) {
  constexpr int kMaxReads = 64;  // More than a pipe holds.
  Task& task = tasks_.at(index);
  task.ended = true;
  const auto drain = [&](Fd* from, LineSplitter* lines, char kind) {
    for (int i = 0; i < kMaxReads && ReadSome(index, from, lines, kind); ++i) {
    }
    lines->Finish([&](std::string_view line) {
      AppendTaskLine({kind, static_cast<size_t>(index), line}, &pending_);
    });
    from->Reset();
  };
  drain(&task.child.progress, &task.progress, 'p');
  drain(&task.child.out, &task.out, 'o');
  drain(&task.child.err, &task.err, 'e');
  Ended ended{index, report, {}};
  if (!task.result.empty()) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(task.result, error);
    if (!error && written >= started_) ended.result = ReadJsonFile(task.result).value_or(Json());
  }
  std::string line = Dump(ToJson(ended));
  if (line.size() >= kLongestMessage) {
    AppendTaskLine({'e', static_cast<size_t>(index), task.result + " is too long to be sent"},
                   &pending_);
    ended.result = Json();
    line = Dump(ToJson(ended));
  }
  pending_ += line + "\n";
}

// Kills all tasks. Called if the launcher is unreachable or has requested it.
void Runner::EndAll() {
  const MonotonicTime limit = Clock::now() + kReapTimeout;
  for (auto& [index, task] : tasks_) task.child.Signal(SIGKILL);
  const auto running = [this] {
    return std::any_of(tasks_.begin(), tasks_.end(),
                       [](const auto& task) { return !task.second.ended; });
  };
  while (running() && Clock::now() < limit) {
    ReapAll();
    if (running()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Flush();
}

void Runner::Flush() {
  while (!pending_.empty()) {
    const ssize_t size = write(STDOUT_FILENO, pending_.data(), pending_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {  // The connection has ended.
      pending_.clear();
      ending_ = true;
      return;
    }
    pending_.erase(0, static_cast<size_t>(size));
  }
}

}  // namespace

absl::StatusOr<int> RunTasks(const std::string& launch) {
  MUSTER_ASSIGN_OR_RETURN(const Fd mark, TakeMark(launch));
  MUSTER_ASSIGN_OR_RETURN(launcher::SignalQueue signals, launcher::SignalQueue::Open());
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
  return Runner(std::move(signals)).Run();
}

}  // namespace muster::hosts
