// What the launcher does next, and what the job's exit code is: pure functions of what has happened
// to its tasks. The rules, in words, are in docs/launch.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/telemetry/supervisor.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/plan.h"

namespace muster {

// Whether a task that ended is started again, with the same TF_CONFIG. Never after an exit code
// below 128, which says that it would end like that again, nor once the launcher was asked to stop.
enum class RestartPolicy {
  kNever,
  kOnFailure,  // after a death by a signal, or an exit code from 128 on but preempted
  kAlways,     // also after preempted (143)
};
inline constexpr std::string_view kRestartPolicyNames[] = {"never", "on-failure", "always"};

struct LaunchOptions {
  RestartPolicy restart = RestartPolicy::kNever;
  int max_restarts = 10;  // of each task, however long it ran
  // The job goes on without a worker that is lost (elastic.min_workers).
  bool elastic = false;
  // The job goes on without a worker or a ps that is lost (parameter_server); without whom it
  // cannot is the chief's to judge.
  bool independent = false;
  // Before the second and later restarts of one task, growing by as much each time.
  Duration restart_delay = std::chrono::seconds(1);
  // After the lead's end the others may take this long to end by themselves.
  Duration end_grace = std::chrono::seconds(10);
  // After a lead that failed for good (below 128) the others are asked to end so much later: they
  // may be trying to tell it of their own failure, which is the same.
  Duration ask_grace = std::chrono::seconds(1);
  // After a task has failed the lead may take this long to reach its verdict.
  Duration verdict_timeout = std::chrono::seconds(30);
  // A killed process is gone after this long, unless the kernel holds it.
  Duration reap_timeout = std::chrono::seconds(5);
};

struct TaskState {
  PlannedTask task;
  bool ended = false;
  ExitReport report;
  MonotonicTime ended_at;
  int restarts = 0;
  pid_t pid = 0;
  // The job has lost it, though its process may still be there; killed at `kill_at`.
  std::optional<LostTask> lost;
  MonotonicTime kill_at;
};

struct LaunchState {
  std::vector<TaskState> tasks;
  int stop_requests = 0;  // the first SIGINT, SIGTERM, ..., and each SIGINT after it
  std::optional<MonotonicTime> terminated_at;  // when the launcher itself asked all to stop
  bool asked_to_end = false;                   // kAskToEnd is done
  std::optional<MonotonicTime> killed_at;      // when the launcher killed what was left
};

enum class LaunchAction {
  kWait,
  kTerminate,  // SIGTERM to all that are left
  kAskToEnd,   // the same after the verdict, which it does not change
  kKill,       // SIGKILL to all that are left
  kKillTask,   // SIGKILL to `task`, which is lost to its job, so that it can be started again
  kRestart,    // start `task` again
  kDone,       // nothing is left, or it cannot be ended
};

struct LaunchDecision {
  LaunchAction action = LaunchAction::kWait;
  std::string reason;                  // a sentence, for all but kWait and an ordinary kDone
  std::optional<MonotonicTime> until;  // kWait: look again then, if nothing happens before
  int task = -1;                       // kKillTask, kRestart: its index
};

LaunchDecision Decide(MonotonicTime now, const LaunchState& state, const LaunchOptions& options);

// Whether it has ended and is started again, now or later.
bool Restartable(const LaunchState& state, const TaskState& task, const LaunchOptions& options);

// A task told that another one is lost to the job, or was found again. What it says about a process
// that has ended since is no news.
void Note(MonotonicTime now, const SupervisorLine& line, LaunchState* state);

struct LaunchVerdict {
  int code = 0;
  bool preempted = false;  // 143 as an exit code, not as a death by SIGTERM
  std::string reason;  // "chief 0 exited with code 138 (a peer was lost, ...)"; empty when it is 0
};

// REQUIRES: the lead has ended, or the launcher has killed everything.
LaunchVerdict VerdictOf(const LaunchState& state, const LaunchOptions& options = {});

// `task` is an evaluator that ended for a reason of its own, while the job was well.
bool GoesOnWithout(const LaunchState& state, const TaskState& task);
// It exited as preempted, by itself.
bool ToldToStop(const ExitReport& report);
// "exited with code 2 (configuration)", "was killed by SIGKILL".
std::string Describe(const ExitReport& report);

}  // namespace muster
