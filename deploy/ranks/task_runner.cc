#include "deploy/ranks/task_runner.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/base/process/restarts.h"
#include "deploy/launcher/processes/child.h"
#include "deploy/launcher/processes/exec_image.h"

namespace muster::ranks {
namespace {

using launcher::ExecImage;
using launcher::ExitReport;
using launcher::LaunchAction;
using launcher::LaunchDecision;
using launcher::LaunchOptions;
using launcher::LaunchState;
using launcher::TaskState;

std::map<std::string, std::string> VariablesOf(const TaskCommand& command, int restarts) {
  std::map<std::string, std::string> variables = command.environment;
  // If it is 0, the task inherits the variable of this process.
  if (const int before = command.restarts + restarts; before > 0)
    variables[kRestartsVariable] = std::to_string(before);
  return variables;
}

absl::Status CannotStart(const TaskCommand& command, int error) {
  return ConfigurationError(fmt::format("cannot start {}: {}: {}", command.task.Name(),
                                        command.arguments.front(), std::strerror(error)));
}

// Blocks the stop signals. A stop request during the start of the task stays pending until the task
// is ready.
void BlockStopSignals() {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
}

void Say(const std::string& line) { fmt::print(stderr, "muster: {}\n", line); }

// The task's process and its restarts.
class Supervised {
 public:
  Supervised(const TaskCommand& command, const LaunchOptions& options)
      : command_(command), options_(options) {
    TaskState task;
    task.task = command.task;
    task.task.lead = true;  // This process ends with it.
    state_.tasks.push_back(task);
    sigemptyset(&signals_);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&signals_, signal);
    struct sigaction hangup = {};  // Under nohup, SIGHUP is ignored, also by the task.
    if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
      sigaddset(&signals_, SIGHUP);
  }

  absl::StatusOr<int> Run() {
    std::signal(SIGCHLD, SIG_DFL);  // Some parents ignore it, which would discard exit codes.
    sigprocmask(SIG_BLOCK, &signals_, &inherited_);
    MUSTER_RETURN_IF_ERROR(Start());
    while (true) {
      Reap();
      const LaunchDecision decision = Decide(Clock::now(), state_, options_);
      if (decision.action == LaunchAction::kDone) return task().report.code;
      if (decision.action == LaunchAction::kRestart) {
        Say(fmt::format("{} {}; {}", command_.task.Name(), Describe(task().report),
                        decision.reason));
        ++task().restarts;
        MUSTER_RETURN_IF_ERROR(Start());
      } else {
        Wait(decision.until);
      }
    }
  }

 private:
  TaskState& task() { return state_.tasks.front(); }

  absl::Status Start() {
    const ExecImage image(command_.arguments, VariablesOf(command_, task().restarts));
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) return CannotStart(command_, errno);
    if (pid == 0) {
      // If this process died before prctl took effect, no signal will kill the child.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(128 + SIGKILL);
      sigprocmask(SIG_SETMASK, &inherited_, nullptr);
      BlockStopSignals();
      execve(image.argv()[0], image.argv(), image.envp());
      _exit(127);
    }
    setpgid(pid, pid);  // Parent and child both do this, so that the order does not matter.
    task().pid = pid;
    task().ended = false;
    task().report = {};
    return absl::OkStatus();
  }

  void Reap() {
    if (task().ended) return;
    const std::optional<ExitReport> report = launcher::ReapGroup(task().pid);
    if (!report) return;
    task().ended = true;
    task().ended_at = Clock::now();
    task().report = *report;
  }

  void Wait(std::optional<MonotonicTime> until) {
    timespec limit = {3600, 0};
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
      const int64_t ms = std::clamp<int64_t>(left.count(), 0, 3600 * 1000);
      limit = {ms / 1000, static_cast<long>(ms % 1000) * 1'000'000};
    }
    const int signal = sigtimedwait(&signals_, nullptr, &limit);
    if (signal <= 0 || signal == SIGCHLD) return;
    // After a stop request, the task is not restarted.
    state_.stop_requests = 1;
    // A task saves after SIGTERM. SIGHUP would kill it.
    if (!task().ended) kill(-task().pid, signal == SIGHUP ? SIGTERM : signal);
  }

  const TaskCommand& command_;
  const LaunchOptions& options_;
  LaunchState state_;
  sigset_t signals_, inherited_;
};

}  // namespace

absl::Status ExecTask(const TaskCommand& command) {
  const ExecImage image(command.arguments, VariablesOf(command, 0));
  BlockStopSignals();
  execve(image.argv()[0], image.argv(), image.envp());
  return CannotStart(command, errno);
}

absl::StatusOr<int> SuperviseTask(const TaskCommand& command, const LaunchOptions& options) {
  if (access(command.arguments.front().c_str(), X_OK) != 0) return CannotStart(command, errno);
  return Supervised(command, options).Run();
}

}  // namespace muster::ranks
