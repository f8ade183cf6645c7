// Pure functions that decide the next action of `muster launch` and the job's exit code, from the
// state of the tasks. The lead is the task whose exit code is the job's exit code: the chief, or
// worker 0 in a cluster without a chief. docs/launch.md describes the rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/process/supervisor.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/processes/child.h"

namespace muster::launcher {

// Selects which ended tasks the launcher restarts, with the same TF_CONFIG. Under every policy, the
// launcher does not restart a task that exited with a code below 128, because the task would end in
// the same way again. After a stop request, the launcher restarts no task.
enum class RestartPolicy {
  kNever,
  // Restarts a task that a signal killed, or that exited with a code of 128 or above except 143
  // (preempted).
  kOnFailure,
  kAlways,  // As kOnFailure, and also after exit code 143 (preempted).
};
inline constexpr std::string_view kRestartPolicyNames[] = {"never", "on-failure", "always"};
// Returns all names, for command-line options.
std::vector<std::string> RestartPolicyNames();
// REQUIRES: `name` is in kRestartPolicyNames.
RestartPolicy RestartPolicyOf(std::string_view name);

struct LaunchOptions {
  RestartPolicy restart = RestartPolicy::kNever;
  int max_restarts = 10;  // The maximum number of restarts of each task in the whole launch.
  // True if the job continues without a lost worker (the job's elastic.min_workers or
  // elastic.spares).
  bool elastic = false;
  // True for a job with parameter servers, which may continue without a lost worker or ps task. The
  // chief decides which tasks the job needs.
  bool independent = false;
  // The delay before the second restart of a task. The first restart has no delay. Each further
  // restart waits longer than the previous restart, by this amount.
  Duration restart_delay = std::chrono::seconds(1);
  // The time in which the remaining tasks must exit. The time starts when the lead ends or when the
  // launcher carries out kTerminate, whichever happens first.
  Duration end_grace = std::chrono::seconds(10);
  // If the lead exited with a code from 1 to 127, the launcher sends SIGTERM to the other tasks
  // after this delay. The delay is for tasks that are about to report the same failure.
  Duration ask_grace = std::chrono::seconds(1);
  // The lead must end within this time after a task has failed.
  Duration verdict_timeout = std::chrono::seconds(30);
  // Killed processes must disappear within this time. After that, the launcher no longer waits for
  // them.
  Duration reap_timeout = std::chrono::seconds(5);
};

struct TaskState {
  PlannedTask task;
  bool ended = false;
  ExitReport report;
  MonotonicTime ended_at;
  int restarts = 0;
  pid_t pid = 0;
  // Set if some task has reported that the job has lost this task. The process of the lost task may
  // still run. If the task can be restarted, the launcher kills the process at `kill_at`.
  std::optional<LostTask> lost;
  MonotonicTime kill_at;
};

struct LaunchState {
  std::vector<TaskState> tasks;
  // The number of stop requests. SIGINT, SIGTERM, SIGHUP or a closed output counts as the first
  // stop request. Each later SIGINT counts as another stop request.
  int stop_requests = 0;
  // When the launcher carried out kTerminate.
  std::optional<MonotonicTime> terminated_at;
  bool asked_to_end = false;  // True after the launcher has carried out kAskToEnd.
  // When the launcher carried out kKill.
  std::optional<MonotonicTime> killed_at;
};

enum class LaunchAction {
  kWait,
  kTerminate,  // Send SIGTERM to all remaining tasks.
  // Send SIGTERM to all remaining tasks after the lead has ended. This does not change the exit
  // code of the job.
  kAskToEnd,
  kKill,      // Send SIGKILL to all remaining tasks.
  kKillTask,  // Send SIGKILL to `task`, which the job has lost, so that `task` can be restarted.
  kRestart,   // Start `task` again.
  kDone,      // End the launch: all tasks have ended, or killed tasks do not disappear.
};

struct LaunchDecision {
  LaunchAction action = LaunchAction::kWait;
  std::string reason;  // One sentence. Empty for kWait, and for kDone if all tasks have ended.
  std::optional<MonotonicTime> until;  // For kWait: call Decide again by this time.
  int task = -1;                       // For kKillTask and kRestart: the task's index.
};

LaunchDecision Decide(MonotonicTime now, const LaunchState& state, const LaunchOptions& options);

// Returns true if the task has ended and the launcher will restart it, now or after a delay.
bool Restartable(const LaunchState& state, const TaskState& task, const LaunchOptions& options);

// Records a task's report that the job has lost another task, or that the lost task is back.
// Ignores reports about a process that has ended.
void Note(MonotonicTime now, const SupervisorLine& line, LaunchState* state);

struct LaunchVerdict {
  int code = 0;
  // True if the task that determines `code` exited with code 143. False if SIGTERM killed this
  // task.
  bool preempted = false;
  // "chief 0 exited with code 138 (a peer was lost, ...)". Empty if `code` is 0.
  std::string reason;
};

// Returns the job's exit code with its reason. REQUIRES: the lead has ended, or the launcher has
// killed all tasks.
LaunchVerdict VerdictOf(const LaunchState& state, const LaunchOptions& options = {});

// Returns true if the job continues without `task`, because `task` is an evaluator that a signal
// killed, or that exited with code 2 or 138. Returns false if the lead has ended, if a task other
// than an evaluator has failed, or if a stop was requested.
bool GoesOnWithout(const LaunchState& state, const TaskState& task);
// Returns true if the process exited with the code for preempted (143).
bool WasAskedToStop(const ExitReport& report);
// Returns "exited with code 2 (configuration)" or "was killed by SIGKILL".
std::string Describe(const ExitReport& report);

}  // namespace muster::launcher
