#include "deploy/launcher/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "common/base/files/created_files.h"
#include "common/base/logging.h"
#include "common/base/restarts.h"
#include "common/telemetry/progress.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/console.h"
#include "deploy/launcher/lines.h"
#include "deploy/launcher/ports.h"
#include "deploy/launcher/report.h"
#include "deploy/launcher/signals.h"
#include "deploy/launcher/task_log.h"
#include "muster/json.h"

namespace muster::launcher {
namespace {

using Stream = Console::Stream;

// A task's process and its output. running_ has the same indices as LaunchState::tasks.
struct Running {
  Child child;
  LineSplitter out, err, progress;
  TaskLog log;
};

class Launcher {
 public:
  Launcher(const LaunchRequest& request, SignalQueue signals)
      : request_(request),
        signals_(std::move(signals)),
        console_(ConsoleOptions()),
        notices_(request.tell_chief) {}

  absl::Status Start();
  int Run();

 private:
  static Console::Options ConsoleOptions();
  absl::StatusOr<PortReservation> ReservePorts() const;
  absl::StatusOr<Child> StartChild(size_t index) const;
  absl::Status StartTask(size_t index);
  void StartAgain(size_t index);
  void StopAll();

  void Wait(std::optional<MonotonicTime> until);
  void ReadProgress(size_t index);
  bool ReadSome(size_t index, Stream stream);
  void Drain(size_t index);
  void OnLine(size_t index, Stream stream, std::string_view line);
  void OnProgress(size_t index, std::string_view line);
  void HandleSignals();
  void RequestStop(int signal, std::string_view why);
  void Suspend();
  void ReapAll();
  void NotifyChief(const TaskState& task);
  bool Act(const LaunchDecision& decision);
  void SignalAll(int signal);
  void Say(std::string_view line);
  void Conclude(const LaunchVerdict& verdict);

  const LaunchRequest& request_;
  SignalQueue signals_;
  Console console_;
  ProgressDisplay display_{console_.has_terminal(), LocaleIsUtf8()};
  std::vector<PlannedTask> plan_;
  std::vector<std::unique_ptr<Running>> running_;
  std::optional<PortReservation> ports_;
  LaunchState state_;
  MonotonicTime started_;
  // Distinguishes this run's result.json from an older one.
  std::filesystem::file_time_type started_wall_;
  std::string root_cause_;  // The lead's first line that names a root cause.
  TaskExitNotifier notices_;
};

Console::Options Launcher::ConsoleOptions() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  Console::Options options;
  options.colour = (no_colour == nullptr || *no_colour == '\0') &&
                   (terminal == nullptr || std::string_view(terminal) != "dumb");
  return options;
}

absl::StatusOr<PortReservation> Launcher::ReservePorts() const {
  constexpr const char* kRangeFile = "/proc/sys/net/ipv4/ip_local_port_range";
  PortRange ephemeral = {32768, 60999};  // Linux's default.
  if (std::FILE* file = std::fopen(kRangeFile, "r")) {
    char text[64] = {};
    const bool read = std::fgets(text, sizeof text, file) != nullptr;
    std::fclose(file);
    if (read) {
      MUSTER_ASSIGN_OR_RETURN(ephemeral, ParsePortRange(text));
    }
  }
  return PortReservation::Reserve(request_.size.processes(), ephemeral, std::random_device{}());
}

absl::Status Launcher::Start() {
  MUSTER_RETURN_IF_ERROR(Check(request_.size));
  started_ = Clock::now();
  started_wall_ = std::filesystem::file_time_type::clock::now();
  MUSTER_ASSIGN_OR_RETURN(PortReservation ports, ReservePorts());
  ports_.emplace(std::move(ports));
  plan_ = PlanCluster(request_.size, ports_->ports());
  for (const PlannedTask& task : plan_) {
    const std::string binary = request_.bin_dir + "/" + task.Binary();
    if (access(binary.c_str(), X_OK) != 0) {
      return ConfigurationError(
          errno == ENOENT
              ? fmt::format(
                    "cannot start {}: there is no {}; this installation cannot run {} tasks",
                    task.Name(), binary, task.type)
              : fmt::format("cannot start {}: {}: {}", task.Name(), binary, std::strerror(errno)));
    }
  }
  if (!request_.gpus.note.empty()) Say(request_.gpus.note);
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (absl::Status status = StartTask(i); !status.ok()) {
      StopAll();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Child> Launcher::StartChild(size_t index) const {
  const PlannedTask& task = plan_[index];
  ChildOptions options;
  options.arguments = {request_.bin_dir + "/" + task.Binary()};
  for (const std::vector<std::string>* more : {&request_.job, &request_.arguments})
    options.arguments.insert(options.arguments.end(), more->begin(), more->end());
  options.environment = request_.environment;
  options.environment["TF_CONFIG"] = TfConfigFor(plan_, task);
  if (index < state_.tasks.size())
    options.environment[kRestartsVariable] = std::to_string(state_.tasks[index].restarts);
  if (index < request_.gpus.visible.size() && request_.gpus.visible[index])
    options.environment["CUDA_VISIBLE_DEVICES"] = *request_.gpus.visible[index];
  // The launcher adds the task's name to each line.
  options.environment.emplace(kLogTaskVariable, "0");
  options.progress_variable = kProgressFdVariable;
  return Child::Start(options);
}

absl::Status Launcher::StartTask(size_t index) {
  const PlannedTask& task = plan_[index];
  TaskLog log;
  if (!request_.model_dir.empty()) {
    AddJobFolder(request_.model_dir);
    MUSTER_ASSIGN_OR_RETURN(log, TaskLog::Open(request_.model_dir + "/logs", task));
  }
  MUSTER_ASSIGN_OR_RETURN(Child child, StartChild(index));
  running_.push_back(
      std::make_unique<Running>(Running{std::move(child), {}, {}, {}, std::move(log)}));
  state_.tasks.push_back({task});
  state_.tasks.back().pid = running_.back()->child.pid();
  return absl::OkStatus();
}

// The restarted task continues in the same log file.
void Launcher::StartAgain(size_t index) {
  TaskState& task = state_.tasks[index];
  ++task.restarts;
  absl::StatusOr<Child> child = StartChild(index);
  if (!child.ok()) {
    // Treats this as a process that ended at once: the next attempt comes after the delay.
    Say(Message(child.status()));
    task.ended_at = Clock::now();
    return;
  }
  task.pid = child->pid();
  running_[index]->child = *std::move(child);
  task.ended = false;
  task.report = {};
  if (task.task.lead) root_cause_.clear();  // The old line belongs to the previous process.
}

// Ends the tasks after an incomplete start.
void Launcher::StopAll() {
  SignalAll(SIGKILL);
  state_.killed_at = Clock::now();
  while (true) {
    ReapAll();
    const LaunchDecision decision = Decide(Clock::now(), state_, request_.options);
    if (decision.action != LaunchAction::kWait) return;
    Wait(decision.until);
  }
}

int Launcher::Run() {
  while (true) {
    HandleSignals();
    ReapAll();
    const MonotonicTime now = Clock::now();
    const LaunchDecision decision = Decide(now, state_, request_.options);
    if (Act(decision)) break;
    // Two columns stay free for the ^C that the terminal echoes, and one to prevent wrapping.
    console_.SetBar(display_.Bar(console_.width() - 3, now));
    console_.Flush();
    if (console_.reader_gone() && state_.stop_requests == 0) {
      RequestStop(SIGTERM, "nobody reads this output any more");
      continue;
    }
    if (decision.action != LaunchAction::kWait) continue;
    std::optional<MonotonicTime> until = decision.until;
    if (const auto change = display_.NextChange(now))
      until = std::min(until.value_or(*change), *change);
    Wait(until);
  }
  const LaunchVerdict verdict = VerdictOf(state_, request_.options);
  Conclude(verdict);
  console_.Close();
  return verdict.code;
}

// Blocks until an event occurs, and reads the available output.
void Launcher::Wait(std::optional<MonotonicTime> until) {
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}};
  for (int fd : {console_.out_waiting(), console_.err_waiting()})
    polled.push_back({fd, POLLOUT, 0});
  const size_t first_task = polled.size();
  for (const auto& running : running_) {
    const bool read = !console_.congested();
    polled.push_back({read ? running->child.out.get() : -1, POLLIN, 0});
    polled.push_back({read ? running->child.err.get() : -1, POLLIN, 0});
    polled.push_back({running->child.progress.get(), POLLIN, 0});
  }
  int timeout = -1;
  if (until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
  }
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;
  for (size_t i = 0; i < running_.size(); ++i) {
    const pollfd* fds = &polled[first_task + 3 * i];
    if (fds[0].revents != 0) ReadSome(i, Stream::kOut);
    if (fds[1].revents != 0) ReadSome(i, Stream::kErr);
    if (fds[2].revents != 0) ReadProgress(i);
    if (absl::Status status = running_[i]->log.Flush(); !status.ok()) Say(Message(status));
  }
}

// Returns false if nothing more can be read now.
bool Launcher::ReadSome(size_t index, Stream stream) {
  Running& running = *running_[index];
  Fd& fd = stream == Stream::kOut ? running.child.out : running.child.err;
  if (!fd) return false;
  LineSplitter& lines = stream == Stream::kOut ? running.out : running.err;
  auto on_line = [&](std::string_view line) { OnLine(index, stream, line); };
  char bytes[64 * 1024];
  const ssize_t size = read(fd.get(), bytes, sizeof bytes);
  if (size > 0) {
    lines.Append({bytes, static_cast<size_t>(size)}, on_line);
    return true;
  }
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  lines.Finish(on_line);
  fd.Reset();
  return false;
}

// Reads the remaining output of a task that has ended. Does not wait for the end of the pipe,
// because a process that left the group may hold it open.
void Launcher::Drain(size_t index) {
  constexpr int kMaxReads = 64;  // More than a pipe holds.
  Running& running = *running_[index];
  ReadProgress(index);
  for (Stream stream : {Stream::kOut, Stream::kErr}) {
    for (int i = 0; i < kMaxReads && ReadSome(index, stream); ++i) {
    }
    (stream == Stream::kOut ? running.out : running.err).Finish([&](std::string_view line) {
      OnLine(index, stream, line);
    });
  }
  running.progress.Finish([](std::string_view) {});  // An incomplete line is ignored.
  running.child.out.Reset();
  running.child.err.Reset();
  running.child.progress.Reset();
}

void Launcher::ReadProgress(size_t index) {
  Running& running = *running_[index];
  auto on_line = [&](std::string_view line) { OnProgress(index, line); };
  char bytes[128 * 1024];  // No packet is larger.
  while (running.child.progress) {
    const ssize_t size = read(running.child.progress.get(), bytes, sizeof bytes);
    if (size > 0) {
      running.progress.Append({bytes, static_cast<size_t>(size)}, on_line);
    } else if (size < 0 && errno == EAGAIN) {
      return;
    } else if (size == 0 || errno != EINTR) {
      running.child.progress.Reset();
    }
  }
}

void Launcher::OnLine(size_t index, Stream stream, std::string_view line) {
  const PlannedTask& task = plan_[index];
  constexpr std::string_view kRootCause = "ROOT CAUSE:";
  if (const size_t place = line.find(kRootCause);
      task.lead && root_cause_.empty() && place != std::string_view::npos) {
    root_cause_ = line.substr(place);
  }
  console_.Line(stream, fmt::format("[{}] ", task.Name()), static_cast<int>(index), line);
  if (absl::Status status = running_[index]->log.Append(line); !status.ok()) Say(Message(status));
}

void Launcher::OnProgress(size_t index, std::string_view line) {
  const absl::StatusOr<Json> json = ParseJson(line, "progress");
  if (!json.ok()) return;
  if (IsSupervisorLine(*json)) {
    if (const auto told = SupervisorLineFromJson(*json); told.ok())
      Note(Clock::now(), *told, &state_);
    return;
  }
  const absl::StatusOr<ProgressState> state = ProgressFromJson(*json);
  if (!state.ok()) return;
  for (const std::string& text : display_.Update(*state, Clock::now())) {
    OnLine(index, Stream::kErr, text);
  }
}

void Launcher::HandleSignals() {
  while (const std::optional<int> signal = signals_.Next()) {
    switch (*signal) {
      case SIGINT:
        RequestStop(SIGINT, "SIGINT");
        break;
      case SIGTERM:
      case SIGHUP:
        // Only the first signal counts, because Slurm and container runtimes repeat it while the
        // tasks save.
        if (state_.stop_requests == 0)
          RequestStop(SIGTERM, fmt::format("SIG{}", sigabbrev_np(*signal)));
        break;
      case SIGTSTP:
        Suspend();
        break;
      default:  // SIGCHLD, SIGWINCH: every iteration handles them.
        break;
    }
  }
}

void Launcher::RequestStop(int signal, std::string_view why) {
  ++state_.stop_requests;
  if (state_.stop_requests > 1) return;  // Decide handles it.
  Say(fmt::format("{}: asked all tasks to stop; {} ends them at once", why,
                  signal == SIGINT ? "once more" : "SIGINT"));
  SignalAll(signal);
}

// Handles Ctrl-Z. The tasks have their own process groups, so the terminal does not stop them.
void Launcher::Suspend() {
  console_.SetBar("");
  Say("suspended, with all tasks");
  console_.Flush();
  SignalAll(SIGSTOP);
  raise(SIGSTOP);
  SignalAll(SIGCONT);
}

void Launcher::ReapAll() {
  for (size_t i = 0; i < running_.size(); ++i) {
    TaskState& task = state_.tasks[i];
    if (task.ended) continue;
    const std::optional<ExitReport> report = running_[i]->child.Reap();
    if (!report) continue;
    Drain(i);
    if (absl::Status status = running_[i]->log.Flush(); !status.ok()) Say(Message(status));
    task.ended = true;
    task.report = *report;
    task.ended_at = Clock::now();
    task.lost.reset();
    if (task.task.lead) {
      for (const std::string& line :
           display_.Update({.kind = ProgressState::Kind::kEnd}, task.ended_at)) {
        Say(line);
      }
    }
    if (report->code != 0 && report->code != static_cast<int>(ExitCode::kPreempted)) {
      Say(fmt::format("{} {}{}", task.task.Name(), Describe(*report),
                      GoesOnWithout(state_, task) ? ": the job goes on without it" : ""));
      NotifyChief(task);
    }
  }
}

// Notifies the chief of a task that will not be restarted. A task with an exit code below 128 has
// reported its failure itself.
void Launcher::NotifyChief(const TaskState& task) {
  if (task.report.signal == 0 && task.report.code < 128) return;
  if (task.task.lead || task.task.type == "evaluator") return;
  if (Restartable(state_, task, request_.options) || state_.stop_requests > 0) return;
  const TaskState& lead = state_.tasks[0];  // The lead comes first.
  if (lead.ended) return;
  notices_.Add({lead.task.address, TfConfigFor(plan_, lead.task), task.task.Id(), task.pid,
                Describe(task.report) + ", and is not started again"});
}

// Returns true if the launch is over.
bool Launcher::Act(const LaunchDecision& decision) {
  if (!decision.reason.empty()) Say(decision.reason);
  switch (decision.action) {
    case LaunchAction::kWait:
      return false;
    case LaunchAction::kTerminate:
      state_.terminated_at = Clock::now();
      SignalAll(SIGTERM);
      return false;
    case LaunchAction::kAskToEnd:
      state_.asked_to_end = true;
      SignalAll(SIGTERM);
      return false;
    case LaunchAction::kKill:
      state_.killed_at = Clock::now();
      SignalAll(SIGKILL);
      return false;
    case LaunchAction::kKillTask:
      state_.tasks[decision.task].lost.reset();
      running_[decision.task]->child.Signal(SIGKILL);
      return false;
    case LaunchAction::kRestart:
      StartAgain(static_cast<size_t>(decision.task));
      return false;
    case LaunchAction::kDone:
      return true;
  }
  return true;
}

void Launcher::SignalAll(int signal) {
  for (const auto& running : running_) running->child.Signal(signal);
}

void Launcher::Say(std::string_view line) { console_.Line(Stream::kErr, "muster: ", -1, line); }

void Launcher::Conclude(const LaunchVerdict& verdict) {
  LaunchOutcome outcome = {.verdict = verdict,
                           .elapsed = Clock::now() - started_,
                           .model_dir = request_.model_dir,
                           .root_cause = root_cause_,
                           .result = {},
                           .program = request_.program,
                           .job = request_.job};
  if (!request_.model_dir.empty()) {
    const std::string path = request_.model_dir + "/result.json";
    std::error_code error;
    const auto written = std::filesystem::last_write_time(path, error);
    if (!error && written >= started_wall_) {
      if (absl::StatusOr<Json> result = ReadJsonFile(path); result.ok()) outcome.result = *result;
    }
  }
  for (const std::string& line : Report(state_, outcome)) Say(line);
}

}  // namespace

absl::StatusOr<int> RunLaunch(const LaunchRequest& request) {
  MUSTER_ASSIGN_OR_RETURN(SignalQueue signals, SignalQueue::Open());
  Launcher launcher(request, std::move(signals));
  MUSTER_RETURN_IF_ERROR(launcher.Start());
  return launcher.Run();
}

}  // namespace muster::launcher
