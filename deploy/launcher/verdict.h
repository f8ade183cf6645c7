// The launcher's next action and the job's exit code, as pure functions of the state of its tasks.
// docs/launch.md describes the rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/process/supervisor.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"

namespace muster {

// When to restart a task that ended, with the same TF_CONFIG. A task is never restarted after an
// exit code below 128, because it would end in the same way again. No task is restarted after the
// launcher was asked to stop.
enum class RestartPolicy {
  kNever,
  // After a death by a signal, or an exit code of 128 and above except preempted (143).
  kOnFailure,
  kAlways,  // Also after preempted (143).
};
inline constexpr std::string_view kRestartPolicyNames[] = {"never", "on-failure", "always"};

struct LaunchOptions {
  RestartPolicy restart = RestartPolicy::kNever;
  int max_restarts = 10;  // Per task, however long it ran.
  // The job continues without a lost worker (elastic.min_workers).
  bool elastic = false;
  // The job continues without a lost worker or ps (parameter_server). The chief decides which tasks
  // it needs.
  bool independent = false;
  // The delay before the second restart of one task. Each later restart adds the same amount.
  Duration restart_delay = std::chrono::seconds(1);
  // Time for the other tasks to exit after the end of the lead.
  Duration end_grace = std::chrono::seconds(10);
  // If the lead failed permanently (below 128), the others are asked to end after this delay. They
  // may be about to report the same failure to it.
  Duration ask_grace = std::chrono::seconds(1);
  // Time for the lead to reach its verdict after a task has failed.
  Duration verdict_timeout = std::chrono::seconds(30);
  // Time in which a killed process disappears, unless the kernel holds it.
  Duration reap_timeout = std::chrono::seconds(5);
};

struct TaskState {
  PlannedTask task;
  bool ended = false;
  ExitReport report;
  MonotonicTime ended_at;
  int restarts = 0;
  pid_t pid = 0;
  // The job has lost the task, though its process may still run. It is killed at `kill_at`.
  std::optional<LostTask> lost;
  MonotonicTime kill_at;
};

struct LaunchState {
  std::vector<TaskState> tasks;
  int stop_requests = 0;  // The first SIGINT, SIGTERM, ..., and each later SIGINT.
  std::optional<MonotonicTime> terminated_at;  // When the launcher asked all tasks to stop.
  bool asked_to_end = false;                   // kAskToEnd is done.
  std::optional<MonotonicTime> killed_at;      // When the launcher killed the remaining tasks.
};

enum class LaunchAction {
  kWait,
  kTerminate,  // SIGTERM to all remaining tasks.
  kAskToEnd,   // SIGTERM after the verdict, which it does not change.
  kKill,       // SIGKILL to all remaining tasks.
  kKillTask,   // SIGKILL to `task`, which its job has lost, so that it can be restarted.
  kRestart,    // Start `task` again.
  kDone,       // No task is left, or the rest cannot be ended.
};

struct LaunchDecision {
  LaunchAction action = LaunchAction::kWait;
  std::string reason;  // A sentence for every action except kWait and an ordinary kDone.
  std::optional<MonotonicTime> until;  // kWait: decide again at this time at the latest.
  int task = -1;                       // kKillTask, kRestart: its index.
};

LaunchDecision Decide(MonotonicTime now, const LaunchState& state, const LaunchOptions& options);

// True if the task has ended and will be started again, now or later.
bool Restartable(const LaunchState& state, const TaskState& task, const LaunchOptions& options);

// Records that a task reported another one as lost to the job, or as found again. Reports about a
// process that has ended since are ignored.
void Note(MonotonicTime now, const SupervisorLine& line, LaunchState* state);

struct LaunchVerdict {
  int code = 0;
  bool preempted = false;  // Exit code 143, not a death by SIGTERM.
  // "chief 0 exited with code 138 (a peer was lost, ...)". Empty if `code` is 0.
  std::string reason;
};

// REQUIRES: the lead has ended, or the launcher has killed all tasks.
LaunchVerdict VerdictOf(const LaunchState& state, const LaunchOptions& options = {});

// True if `task` is an evaluator that ended for its own reason, while the job was running normally.
bool GoesOnWithout(const LaunchState& state, const TaskState& task);
// True if the process exited by itself with the code for preempted.
bool ToldToStop(const ExitReport& report);
// Returns "exited with code 2 (configuration)" or "was killed by SIGKILL".
std::string Describe(const ExitReport& report);

}  // namespace muster
