// These pure functions decide the launcher's next action and the job's exit code from the state of
// the tasks. docs/launch.md describes the rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/process/supervisor.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"

namespace muster::launcher {

// Selects which ended tasks the launcher restarts, with the same TF_CONFIG. It never restarts a
// task after an exit code below 128, because the task would end in the same way again. It restarts
// no task after a stop request.
enum class RestartPolicy {
  kNever,
  // After a death by a signal, or an exit code of 128 and above except preempted (143).
  kOnFailure,
  kAlways,  // As kOnFailure, and also after preempted (143).
};
inline constexpr std::string_view kRestartPolicyNames[] = {"never", "on-failure", "always"};
// Returns all names, for command-line options.
std::vector<std::string> RestartPolicyNames();
// REQUIRES: `name` is one of the names.
RestartPolicy RestartPolicyOf(std::string_view name);

struct LaunchOptions {
  RestartPolicy restart = RestartPolicy::kNever;
  int max_restarts = 10;  // Limit per task, for the whole launch.
  // The job continues without a lost worker (elastic.min_workers or elastic.spares).
  bool elastic = false;
  // The job continues without a lost worker or ps (parameter_server). The chief decides which tasks
  // the job needs.
  bool independent = false;
  // The delay before the second restart of a task. Each later restart adds the same amount.
  Duration restart_delay = std::chrono::seconds(1);
  // Timeout for the other tasks to exit after the lead has ended.
  Duration end_grace = std::chrono::seconds(10);
  // If the lead ended with an exit code below 128, the launcher asks the other tasks to end after
  // this delay. Without the delay it would interrupt tasks that are about to report the same
  // failure.
  Duration ask_grace = std::chrono::seconds(1);
  // Timeout for the lead to end after a task has failed.
  Duration verdict_timeout = std::chrono::seconds(30);
  // Timeout for killed processes to disappear. The kernel may hold a process for longer.
  Duration reap_timeout = std::chrono::seconds(5);
};

struct TaskState {
  PlannedTask task;
  bool ended = false;
  ExitReport report;
  MonotonicTime ended_at;
  int restarts = 0;
  pid_t pid = 0;
  // Set if the job has lost the task while its process may still run. The launcher kills the
  // process at `kill_at`.
  std::optional<LostTask> lost;
  MonotonicTime kill_at;
};

struct LaunchState {
  std::vector<TaskState> tasks;
  // Counts the first SIGINT, SIGTERM or SIGHUP, and each later SIGINT.
  int stop_requests = 0;
  // The time at which the launcher asked all tasks to stop.
  std::optional<MonotonicTime> terminated_at;
  bool asked_to_end = false;  // kAskToEnd was carried out.
  // The time at which the launcher killed the remaining tasks.
  std::optional<MonotonicTime> killed_at;
};

enum class LaunchAction {
  kWait,
  kTerminate,  // SIGTERM to all remaining tasks.
  // SIGTERM to all remaining tasks after the lead has ended. Does not change the verdict.
  kAskToEnd,
  kKill,      // SIGKILL to all remaining tasks.
  kKillTask,  // SIGKILL to `task`, which the job has lost, so that it can be restarted.
  kRestart,   // Start `task` again.
  kDone,      // No task is left, or the remaining ones cannot be ended.
};

struct LaunchDecision {
  LaunchAction action = LaunchAction::kWait;
  std::string reason;                  // One sentence. Empty for kWait and an ordinary kDone.
  std::optional<MonotonicTime> until;  // kWait: decide again at this time at the latest.
  int task = -1;                       // kKillTask, kRestart: the task's index.
};

LaunchDecision Decide(MonotonicTime now, const LaunchState& state, const LaunchOptions& options);

// Returns true if the task has ended and will be restarted, now or later.
bool Restartable(const LaunchState& state, const TaskState& task, const LaunchOptions& options);

// Records a task's report that the job has lost another task or has found it again. Ignores reports
// about a process that has already ended.
void Note(MonotonicTime now, const SupervisorLine& line, LaunchState* state);

struct LaunchVerdict {
  int code = 0;
  bool preempted = false;  // A task exited with code 143. False for a death by SIGTERM.
  // "chief 0 exited with code 138 (a peer was lost, ...)". Empty if `code` is 0.
  std::string reason;
};

// Returns the job's verdict. REQUIRES: the lead has ended, or the launcher has killed all tasks.
LaunchVerdict VerdictOf(const LaunchState& state, const LaunchOptions& options = {});

// Returns true if `task` is an evaluator that ended by itself while the job was running normally.
bool GoesOnWithout(const LaunchState& state, const TaskState& task);
// Returns true if the process exited with the code for preempted (143).
bool WasAskedToStop(const ExitReport& report);
// Returns "exited with code 2 (configuration)" or "was killed by SIGKILL".
std::string Describe(const ExitReport& report);

}  // namespace muster::launcher
