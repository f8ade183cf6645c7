#include "deploy/launcher/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "muster/status.h"

namespace muster::launcher {
namespace {

const TaskState& Lead(const LaunchState& state) {
  return *std::find_if(state.tasks.begin(), state.tasks.end(),
                       [](const TaskState& task) { return task.task.lead; });
}

bool Retryable(const ExitReport& report) { return report.signal != 0 || report.code >= 128; }

// True if the task ended for its own reason. An evaluator never fails a job, and a task that exited
// as preempted was asked to stop.
bool Failed(const TaskState& task) {
  return task.ended && task.task.type != TaskType::kEvaluator && task.report.code != 0 &&
         !WasAskedToStop(task.report);
}

// True if the job continues after the task's end: a worker of an elastic job, or a worker or ps of
// a parameter-server job. The chief decides how few tasks are enough.
bool IsTolerated(const TaskState& task, const LaunchOptions& options) {
  if (task.task.lead || !Retryable(task.report)) return false;
  if (task.task.type == TaskType::kWorker) return options.elastic || options.independent;
  return task.task.type == TaskType::kPs && options.independent;
}

// Returns the first failure that counts for a verdict.
template <typename Counts>
const TaskState* FirstFailure(const LaunchState& state, Counts counts) {
  const TaskState* first = nullptr;
  for (const TaskState& task : state.tasks) {
    if (!Failed(task) || !counts(task)) continue;
    if (first == nullptr || task.ended_at < first->ended_at) first = &task;
  }
  return first;
}

std::string NamesOfLiveTasks(const LaunchState& state) {
  std::string names;
  for (const TaskState& task : state.tasks) {
    if (!task.ended) names += (names.empty() ? "" : ", ") + task.task.Name();
  }
  return names;
}

std::string_view ExitCodeMeaning(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kDone:
      return "done";
    case ExitCode::kProgramFailed:
      return "the program failed";
    case ExitCode::kConfiguration:
      return "configuration";
    case ExitCode::kDataDamaged:
      return "data or checkpoint damaged";
    case ExitCode::kRetryable:
      return "a peer was lost or a deadline passed; a restart can help";
    case ExitCode::kPreempted:
      return "preempted";
  }
  return "";
}

LaunchVerdict VerdictOfTask(const TaskState& task) {
  if (task.report.code == 0) return {};
  return {task.report.code, WasAskedToStop(task.report),
          fmt::format("{} {}", task.task.Name(), Describe(task.report))};
}

// Returns true if the launcher would restart the task after killing its process.
bool Replaceable(const LaunchState& state, const TaskState& task, const LaunchOptions& options) {
  return options.restart != RestartPolicy::kNever && state.stop_requests == 0 &&
         !state.terminated_at && task.restarts < options.max_restarts;
}

}  // namespace

bool Restartable(const LaunchState& state, const TaskState& task, const LaunchOptions& options) {
  if (!task.ended || !Replaceable(state, task, options) || !Retryable(task.report)) return false;
  return !WasAskedToStop(task.report) || options.restart == RestartPolicy::kAlways;
}

void Note(MonotonicTime now, const SupervisorLine& line, LaunchState* state) {
  for (TaskState& task : state->tasks) {
    if (task.task.Id() != line.lost.task) continue;
    if (line.found) {
      task.lost.reset();
    } else if (!task.ended && !task.lost && task.pid == line.lost.pid) {
      task.lost = line.lost;
      task.kill_at = now + line.lost.grace;
    }
  }
}

namespace {

// Returns the next process to kill. A suspended process of a lost task holds its port, and could
// resume while its replacement works.
std::optional<LaunchDecision> NextKill(MonotonicTime now, const LaunchState& state,
                                       const LaunchOptions& options) {
  if (state.killed_at) return std::nullopt;
  std::optional<LaunchDecision> next;
  for (size_t i = 0; i < state.tasks.size(); ++i) {
    const TaskState& task = state.tasks[i];
    if (task.ended || !task.lost || !Replaceable(state, task, options)) continue;
    if (next && *next->until <= task.kill_at) continue;
    next = LaunchDecision{LaunchAction::kWait, "", task.kill_at, static_cast<int>(i)};
  }
  if (!next || now < *next->until) return next;
  const TaskState& task = state.tasks[next->task];
  next->action = LaunchAction::kKillTask;
  next->reason = fmt::format("killing {} (pid {}), which is lost to the job: {}", task.task.Name(),
                             task.pid, task.lost->why);
  return next;
}

MonotonicTime RestartAt(const TaskState& task, const LaunchOptions& options) {
  return task.ended_at + task.restarts * options.restart_delay;
}

// Returns the next due restart, or the time at which it is due.
std::optional<LaunchDecision> NextRestart(MonotonicTime now, const LaunchState& state,
                                          const LaunchOptions& options) {
  if (state.killed_at) return std::nullopt;
  const TaskState& lead = Lead(state);
  // The job has its verdict, so the other tasks end too and are not restarted.
  if (lead.ended && !Restartable(state, lead, options)) return std::nullopt;
  std::optional<LaunchDecision> next;
  for (size_t i = 0; i < state.tasks.size(); ++i) {
    const TaskState& task = state.tasks[i];
    if (!Restartable(state, task, options)) continue;
    const MonotonicTime at = RestartAt(task, options);
    if (next && next->until <= at) continue;
    next = LaunchDecision{LaunchAction::kWait, "", at, static_cast<int>(i)};
  }
  if (!next || now < *next->until) return next;
  const TaskState& task = state.tasks[next->task];
  next->action = LaunchAction::kRestart;
  next->reason = fmt::format("starting {} again ({} of at most {} times)", task.task.Name(),
                             task.restarts + 1, options.max_restarts);
  return next;
}

}  // namespace

bool GoesOnWithout(const LaunchState& state, const TaskState& task) {
  if (task.task.type != TaskType::kEvaluator || Lead(state).ended || state.stop_requests > 0)
    return false;
  if (std::any_of(state.tasks.begin(), state.tasks.end(), Failed)) return false;
  // Another code may be the job's verdict, which the evaluator received from the chief.
  return task.report.signal != 0 || task.report.code == static_cast<int>(ExitCode::kRetryable) ||
         task.report.code == static_cast<int>(ExitCode::kConfiguration);
}

bool WasAskedToStop(const ExitReport& report) {
  return report == ExitReport{static_cast<int>(ExitCode::kPreempted), 0};
}

std::vector<std::string> RestartPolicyNames() {
  return {std::begin(kRestartPolicyNames), std::end(kRestartPolicyNames)};
}

RestartPolicy RestartPolicyOf(std::string_view name) {
  const auto at = std::find(std::begin(kRestartPolicyNames), std::end(kRestartPolicyNames), name);
  return static_cast<RestartPolicy>(at - std::begin(kRestartPolicyNames));
}

std::string Describe(const ExitReport& report) {
  if (!report.host.empty()) return fmt::format("was lost with the connection to {}", report.host);
  if (report.signal != 0) {
    const char* name = sigabbrev_np(report.signal);
    return name != nullptr ? fmt::format("was killed by SIG{}", name)
                           : fmt::format("was killed by signal {}", report.signal);
  }
  const std::string_view meaning = ExitCodeMeaning(report.code);
  return meaning.empty() ? fmt::format("exited with code {}", report.code)
                         : fmt::format("exited with code {} ({})", report.code, meaning);
}

namespace {

// Decides the next action if no single task must be killed or started.
LaunchDecision DecideForAll(MonotonicTime now, const LaunchState& state,
                            const LaunchOptions& options) {
  const bool all_ended = std::all_of(state.tasks.begin(), state.tasks.end(),
                                     [](const TaskState& task) { return task.ended; });
  if (all_ended) return {LaunchAction::kDone};
  if (state.killed_at) {
    const MonotonicTime limit = *state.killed_at + options.reap_timeout;
    if (now < limit) return {LaunchAction::kWait, "", limit};
    return {LaunchAction::kDone, fmt::format("cannot end {}: the kernel holds it after SIGKILL",
                                             NamesOfLiveTasks(state))};
  }
  if (state.stop_requests >= 2) {
    return {LaunchAction::kKill,
            fmt::format("received a second request to stop: killing {} at once",
                        NamesOfLiveTasks(state))};
  }
  const TaskState& lead = Lead(state);
  std::optional<MonotonicTime> last_call, ask;
  std::string since;
  if (lead.ended) {
    last_call = lead.ended_at + options.end_grace;
    since = lead.task.Name() + " ended";
    const bool for_good = lead.report.signal == 0 && lead.report.code > 0 && lead.report.code < 128;
    if (for_good && !state.asked_to_end) ask = lead.ended_at + options.ask_grace;
  }
  if (state.terminated_at &&
      (!last_call || *state.terminated_at + options.end_grace < *last_call)) {
    last_call = *state.terminated_at + options.end_grace;
    since = "SIGTERM";
  }
  if (last_call) {
    if (ask && now >= *ask && now < *last_call) return {LaunchAction::kAskToEnd};
    if (now < *last_call)
      return {LaunchAction::kWait, "", std::min(*last_call, ask.value_or(*last_call))};
    return {LaunchAction::kKill,
            fmt::format("killed the tasks that still ran {:.3g} s after {}: {}",
                        Seconds(options.end_grace), since, NamesOfLiveTasks(state))};
  }
  const auto counts = [&](const TaskState& task) {
    return !IsTolerated(task, options) && !Restartable(state, task, options);
  };
  if (const TaskState* failure = FirstFailure(state, counts)) {
    const MonotonicTime limit = failure->ended_at + options.verdict_timeout;
    if (now < limit) return {LaunchAction::kWait, "", limit};
    return {LaunchAction::kTerminate,
            fmt::format("{} {}, and {} reached no verdict within {:.3g} s: stopping all",
                        failure->task.Name(), Describe(failure->report), lead.task.Name(),
                        Seconds(options.verdict_timeout))};
  }
  return {};
}

}  // namespace

LaunchDecision Decide(MonotonicTime now, const LaunchState& state, const LaunchOptions& options) {
  const auto kill = NextKill(now, state, options);
  if (kill && kill->action != LaunchAction::kWait) return *kill;
  const auto restart = NextRestart(now, state, options);
  if (restart && restart->action != LaunchAction::kWait) return *restart;
  LaunchDecision decision = restart ? *restart : DecideForAll(now, state, options);
  if (kill && decision.action == LaunchAction::kWait)
    decision.until = std::min(decision.until.value_or(*kill->until), *kill->until);
  return decision;
}

LaunchVerdict VerdictOf(const LaunchState& state, const LaunchOptions& options) {
  const TaskState& lead = Lead(state);
  const TaskState* first =
      FirstFailure(state, [&](const TaskState& task) { return !IsTolerated(task, options); });
  // The lead's exit code is the verdict, whichever task failed first. Exception: the lead exited
  // only after the launcher had asked all tasks to stop, because another task had failed.
  if (lead.ended && lead.report.signal == 0 && (!state.terminated_at || first == nullptr)) {
    return VerdictOfTask(lead);
  }
  if (state.killed_at && state.stop_requests >= 2) {
    return {128 + SIGKILL, false, "killed at the second request to stop"};
  }
  if (first != nullptr) return VerdictOfTask(*first);
  return {static_cast<int>(ExitCode::kRetryable), false,
          fmt::format("{} could not be ended", lead.task.Name())};
}

}  // namespace muster::launcher
