#include "deploy/launcher/launcher.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "common/base/files/created_files.h"
#include "common/telemetry/progress.h"
#include "deploy/launcher/console.h"
#include "deploy/launcher/processes/local_processes.h"
#include "deploy/launcher/processes/signals.h"
#include "deploy/launcher/report.h"
#include "deploy/launcher/task_log.h"
#include "muster/json.h"

namespace muster::launcher {
namespace {

using Stream = Console::Stream;

class Launcher final : public ProcessOutput {
 public:
  Launcher(const LaunchRequest& request, SignalQueue signals)
      : request_(request),
        signals_(std::move(signals)),
        console_(ConsoleOptions()),
        notices_(request.tell_chief),
        processes_(request.make_processes ? request.make_processes(*this)
                                          : MakeLocalProcesses(request, *this)) {}

  absl::Status Start();
  int Run();
  // Writes all pending output. Blocks.
  void Close() { console_.Close(); }

  void OnLine(size_t index, Stream stream, std::string_view line) override;
  void OnProgress(size_t index, std::string_view line) override;
  void Say(std::string_view line) override;

 private:
  static Console::Options ConsoleOptions();
  absl::Status StartTask(size_t index);
  void StartAgain(size_t index);
  void StopAll();

  void Wait(std::optional<MonotonicTime> until);
  void HandleSignals();
  void RequestStop(int signal, std::string_view why);
  void Suspend();
  void ReapAll();
  void NotifyChief(const TaskState& task);
  bool Act(const LaunchDecision& decision);
  void SignalAll(int signal);
  void Conclude(const LaunchVerdict& verdict);

  const LaunchRequest& request_;
  SignalQueue signals_;
  Console console_;
  ProgressDisplay display_{console_.has_terminal(), LocaleIsUtf8()};
  std::vector<PlannedTask> plan_;
  std::vector<std::unique_ptr<TaskLog>> logs_;  // In the order of LaunchState::tasks.
  bool has_logs_ = true;                        // False if the files of logs_ cannot be written.
  LaunchState state_;
  MonotonicTime started_;
  std::string root_cause_;  // The lead's first line that names a root cause.
  TaskExitNotifier notices_;
  std::unique_ptr<Processes> processes_;  // Their indices are those of LaunchState::tasks.
};

Console::Options Launcher::ConsoleOptions() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  Console::Options options;
  options.colour = (no_colour == nullptr || *no_colour == '\0') &&
                   (terminal == nullptr || std::string_view(terminal) != "dumb");
  return options;
}

absl::Status Launcher::Start() {
  MUSTER_RETURN_IF_ERROR(Check(request_.size));
  started_ = Clock::now();
  MUSTER_ASSIGN_OR_RETURN(plan_, processes_->Plan(signals_));
  if (request_.planned) request_.planned(plan_[0]);
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (absl::Status status = StartTask(i); !status.ok()) {
      StopAll();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartTask(size_t index) {
  const PlannedTask& task = plan_[index];
  TaskLog log;
  if (!request_.model_dir.empty()) {
    AddJobFolder(request_.model_dir);
    absl::StatusOr<TaskLog> opened = TaskLog::Open(request_.model_dir + "/logs", task);
    if (opened.ok()) {
      log = *std::move(opened);
    } else if (request_.logs_optional) {
      if (has_logs_) Say(fmt::format("{}; this output is the only log", Message(opened.status())));
      has_logs_ = false;
    } else {
      return opened.status();
    }
  }
  MUSTER_RETURN_IF_ERROR(processes_->Start(index, 0));
  logs_.push_back(std::make_unique<TaskLog>(std::move(log)));
  state_.tasks.push_back({task});
  state_.tasks.back().pid = processes_->Pid(index);
  return absl::OkStatus();
}

// The restarted task continues in the same log file.
void Launcher::StartAgain(size_t index) {
  TaskState& task = state_.tasks[index];
  ++task.restarts;
  if (absl::Status status = processes_->Start(index, task.restarts); !status.ok()) {
    // Treats this as a process that ended at once: the next attempt comes after the delay.
    Say(Message(status));
    task.ended_at = Clock::now();
    return;
  }
  task.pid = processes_->Pid(index);
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
      RequestStop(SIGTERM, "the reader of this output has closed it");
      continue;
    }
    if (decision.action != LaunchAction::kWait) continue;
    std::optional<MonotonicTime> until = decision.until;
    if (const auto due = processes_->Tick(now)) until = std::min(until.value_or(*due), *due);
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
  processes_->AddPolled(!console_.congested(), &polled);
  int timeout = -1;
  if (until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
  }
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;
  processes_->Read(polled.data() + first_task);
  for (const auto& log : logs_)
    if (absl::Status status = log->Flush(); !status.ok()) Say(Message(status));
}

void Launcher::OnLine(size_t index, Stream stream, std::string_view line) {
  const PlannedTask& task = plan_[index];
  constexpr std::string_view kRootCause = "ROOT CAUSE:";
  if (const size_t place = line.find(kRootCause);
      task.lead && root_cause_.empty() && place != std::string_view::npos) {
    root_cause_ = line.substr(place);
  }
  console_.Line(stream, fmt::format("[{}] ", task.Name()), static_cast<int>(index), line);
  if (absl::Status status = logs_[index]->Append(line); !status.ok()) Say(Message(status));
}

void Launcher::OnProgress(size_t index, std::string_view line) {
  const absl::StatusOr<Json> json = ParseJson(line, "progress");
  if (!json.ok()) return;
  if (IsSupervisorLine(*json)) {
    if (const auto message = SupervisorLineFromJson(*json); message.ok())
      Note(Clock::now(), *message, &state_);
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
                  signal == SIGINT ? "a second SIGINT" : "SIGINT"));
  SignalAll(signal);
}

// Handles Ctrl-Z. The tasks have their own process groups, so the terminal does not stop them.
void Launcher::Suspend() {
  console_.SetBar("");
  Say("this launcher and all tasks are suspended");
  console_.Flush();
  SignalAll(SIGSTOP);
  processes_->SetSuspended(true);
  raise(SIGSTOP);
  processes_->SetSuspended(false);
  SignalAll(SIGCONT);
}

void Launcher::ReapAll() {
  for (size_t i = 0; i < state_.tasks.size(); ++i) {
    TaskState& task = state_.tasks[i];
    if (task.ended) continue;
    task.pid = processes_->Pid(i);
    const std::optional<ExitReport> report = processes_->Reap(i);
    if (!report) continue;
    if (absl::Status status = logs_[i]->Flush(); !status.ok()) Say(Message(status));
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
                      GoesOnWithout(state_, task) ? ": the job continues without it" : ""));
      NotifyChief(task);
    }
  }
}

// Notifies the chief of a task that will not be restarted. A task with an exit code below 128 has
// reported its failure itself.
void Launcher::NotifyChief(const TaskState& task) {
  if (task.report.signal == 0 && task.report.code < 128) return;
  if (task.task.lead || task.task.type == TaskType::kEvaluator) return;
  if (Restartable(state_, task, request_.options) || state_.stop_requests > 0) return;
  const TaskState& lead = state_.tasks[0];  // The lead comes first.
  if (lead.ended) return;
  notices_.Add({lead.task.address, TfConfigFor(plan_, lead.task), task.task.Id(), task.pid,
                Describe(task.report) + ", and is not restarted"});
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
      processes_->Signal(static_cast<size_t>(decision.task), SIGKILL);
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
  for (size_t i = 0; i < state_.tasks.size(); ++i) processes_->Signal(i, signal);
}

void Launcher::Say(std::string_view line) {
  console_.Line(Stream::kErr, "muster: ", -1, line);
  if (plan_.empty()) console_.Flush();  // The start may take long.
}

void Launcher::Conclude(const LaunchVerdict& verdict) {
  LaunchOutcome outcome = {.verdict = verdict,
                           .elapsed = Clock::now() - started_,
                           .model_dir = request_.model_dir,
                           .root_cause = root_cause_,
                           .result = processes_->Result(),
                           .program = request_.program,
                           .job = request_.job,
                           .logs = has_logs_};
  for (const std::string& line : Report(state_, outcome)) Say(line);
}

}  // namespace

absl::StatusOr<int> RunLaunch(const LaunchRequest& request) {
  MUSTER_ASSIGN_OR_RETURN(SignalQueue signals, SignalQueue::Open());
  Launcher launcher(request, std::move(signals));
  if (absl::Status status = launcher.Start(); !status.ok()) {
    launcher.Close();
    return status;
  }
  return launcher.Run();
}

}  // namespace muster::launcher
