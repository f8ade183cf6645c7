// JobState is the coordinator's data about the job and its members. The functions in this header
// compute the next action from it. Decisions are pure functions of (now, state, options), so tests
// pass the time as an argument. All times are read from the coordinator's clock, which pauses while
// the coordinator's process is suspended. Members report how long ago something happened. When a
// report arrives, the coordinator converts this to a point in time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/pausing_clock.h"
#include "common/base/phase.h"
#include "common/cluster/task.h"
#include "common/cluster/verdict.h"

namespace muster::chief {

// Timeouts and rules of membership. By default the loss of a member ends the generation, and the
// next generation begins once all members are present again.
struct MembershipOptions {
  Duration join = std::chrono::minutes(10);    // Timeout until all declared members are ready.
  Duration rejoin = std::chrono::minutes(10);  // The same timeout after the loss of a generation.
  Duration resume = std::chrono::seconds(1);   // A broken session may resume within this time.
  // A member is lost after this long without a heartbeat.
  Duration heartbeat = std::chrono::seconds(10);
  // Timeout for the last member to finish, from the moment the first member finishes.
  Duration end = std::chrono::seconds(30);
  // Timeout until all members of a generation have connected to each other. Must exceed the
  // members' own formation timeout.
  Duration formation = std::chrono::seconds(25);
  int max_failed_formations = 3;
  // A collective may fail while no member is known to be lost. The coordinator then waits this long
  // for the root cause. During this wait a member counts as lost after `suspect` without a
  // heartbeat.
  Duration root_cause_wait = std::chrono::seconds(3);
  Duration suspect = std::chrono::milliseconds(2500);
  // Timeout for the acknowledgements of a failed job's verdict. A successful job has the timeout
  // `end`.
  Duration failure_ack_timeout = std::chrono::seconds(2);
  Duration phase[kNumPhases] = {};  // Timeout of each phase. Zero: none.
  // Elastic jobs: if a member is missing for `grace`, training continues with the present members.
  // The present members must be at least `min_members`, include the chief, and be more than half of
  // the previous generation. If `min_members` is 0, all declared members are needed. Members that
  // come later are admitted.
  int min_members = 0;
  Duration grace = std::chrono::seconds(30);
  // The number of declared members that wait to replace a lost member.
  int spares = 0;
  // A chief that has just started may replace a lost chief. Members may then hold newer state than
  // any checkpoint, and may not have found the new chief yet. For this long after its start, the
  // chief decides nothing without the absent members: it neither stops the job nor applies `grace`.
  Duration survivors = std::chrono::seconds(3);
  // Elastic jobs: new members are admitted once no other new member has joined or become ready for
  // `gather`. At the latest, they are admitted when `gather_most` has passed since the first one
  // became ready. Members that arrive one after another thus join in one new generation instead of
  // many.
  Duration gather = std::chrono::seconds(3);
  Duration gather_most = std::chrono::seconds(15);
  // Elastic jobs: if a task's process is lost in its first step, the other members do not wait for
  // that task. After the second such loss in a row, the task is not admitted for `backoff`, unless
  // the job needs it. Each further loss doubles this time, up to `max_backoff`.
  Duration backoff = std::chrono::seconds(10);
  Duration max_backoff = std::chrono::minutes(5);
  // Selects the MembershipPolicy (chief/decision/membership_policy.h). True for a parameter-server
  // job. Once all declared members have joined, each has its own generation. A member that is lost
  // or makes no progress is dropped, and new members are admitted. The Director ends the job
  // (Coordinator::End). The coordinator ends it only if a needed ps or all workers are missing for
  // `rejoin`.
  bool independent = false;
  // The number of ps that may be missing, because other ps hold copies of their shards.
  int spare_servers = 0;
  // After a restart of the chief, members that hold state of the run are admitted at once. New
  // members are admitted once all members are present, or after this time.
  Duration newcomers = std::chrono::seconds(4);
};

// An error that a member reported about one generation.
struct ReportedError {
  uint64_t generation = 0;
  std::string message;
  PausingTime at;
  ExitCode code = ExitCode::kRetryable;
};

struct ReportedFailure {
  ExitCode code = ExitCode::kProgramFailed;
  std::string message, host;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  PausingTime at;
};

// A member that the cluster spec declares.
struct DeclaredMember {
  TaskId task;
  std::string address;  // The address that messages show.
};

// The process of a member. The data comes from the process's Hello and its session.
struct MemberProcess {
  bool joined = false;     // It has an accepted session, perhaps a broken one that may resume.
  bool connected = false;  // Its session is connected.
  bool gone = false;       // The session broke, and the data port refuses connections.
  PausingTime broken_at, last_heard;
  uint64_t incarnation = 0;
  std::string host, devices;
  int64_t pid = 0;  // 0: unknown.
  int num_replicas = 0;
  bool again = false;       // It joined with state of this run.
  uint64_t generation = 0;  // Independent members: the generation that only this member is in.
  // Synchronous members: the last generation that was formed with this process. 0: none.
  uint64_t last_generation = 0;
  int64_t first_step = 0;  // The first step of its first generation.
  bool settled = false;    // The process completed `first_step`.
};

// The last report of a member's process.
struct LastReport {
  // The current or failed collective operation. Sequence 0: none.
  std::string collective;
  uint64_t collective_sequence = 0;
  PausingTime collective_since;
  uint64_t collectives_done = 0;  // The highest sequence number of a completed collective.

  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0;
  bool waiting = false;  // The member waits for a generation.
  PausingTime waiting_since;
  int64_t last_step = 0;
  uint64_t formed_generation = 0;
  std::optional<ReportedError> formation_error, collective_error;
  // Elastic jobs: the member was asked to stop, and the others may continue without it.
  bool leaving = false;
  bool finished = false;  // The member left the training loop after last_step.
  // The loop's exit code: kPreempted after a stop at an agreed step.
  ExitCode outcome = ExitCode::kDone;
  std::string outcome_message;
  PausingTime finished_at;
  bool acknowledged = false;
};

struct MemberInfo {
  DeclaredMember declared;
  MemberProcess process;  // For a lost member: only the host.
  LastReport report;      // For a lost member: only phase and step.

  // The coordinator sets the fields below. `in_generation` is true if the member is in
  // JobState::generation. For independent members, it is true if the member is in its own
  // generation.
  bool in_generation = false;
  std::string why_missing = "never connected";
  std::optional<PausingTime> missing_since;  // When the connection was lost.
  // Elastic jobs: how many processes of this task in a row were lost in their first step. The next
  // process is not admitted until `backoff_until`.
  int quick_losses = 0;
  PausingTime backoff_until;
  uint64_t admitted = 0;  // Independent members: the admitted incarnation, 0 if none.
  // Why no further process of the task will start. Empty: one may start.
  std::string abandoned;
  bool left = false;  // The member left when asked to. No other member waits for it.
  // The failure that the task itself reported. The task may never have joined.
  std::optional<ReportedFailure> failure;
};

enum class Stage { kJoining, kForming, kRunning, kEnding };
std::string_view StageName(Stage stage);

struct JobState {
  Stage stage = Stage::kJoining;
  PausingTime started, stage_since;
  uint64_t generation = 0;  // The current generation; while joining, the last one. 0: none yet.
  // When members join, they may hold state from generations of an earlier chief. This is the size
  // of the largest such generation, 0 if there is none.
  int adopted_size = 0;
  // Independent members: when a ps was last admitted. Workers wait for servers, but servers do not
  // wait for workers.
  PausingTime servers_since;
  // All steps are done. Only the chief does the remaining work (passes over other splits, the
  // result). The other members may already have left with the job's verdict.
  bool all_steps_done = false;
  int failed_formations = 0;
  bool stop_requested = false;      // A task received SIGTERM or SIGINT.
  std::vector<MemberInfo> members;  // Indexed by rank.
  Verdict verdict;                  // Valid once stage is kEnding.
  // The last connection that was refused because it did not prove who it is, and why. "" if there
  // was none.
  std::string last_refusal;
  // The verdict must also reach members that have not joined yet.
  bool tell_all = false;
};

enum class Action {
  kWait,
  // Enough members are ready: form a generation. For independent members, the generation contains
  // only `member`.
  kForm,
  kStart,  // All members have connected: start training.
  kDrop,   // No generation needs the lost `member`: wait until it rejoins.
  // End the generation and form the next one, without `member` if one is set.
  kAbortGeneration,
  kStop,    // All members stop at an agreed step.
  kEndJob,  // End the job with `verdict`.
  kClose,   // All members that can receive the verdict have it.
};
struct Decision {
  Action action = Action::kWait;
  std::string reason;  // For the log.
  int member = -1;     // The member that the action is about. -1: none.
  // For kAbortGeneration and kDrop: `member` is connected but makes no progress, or leaves. The
  // coordinator sends it `verdict`, so that its process exits and another one can replace it.
  bool expel = false;
  Verdict verdict;  // kEndJob: the job's verdict. kAbortGeneration, kDrop: about `member`.
};

// Calls Decide of the MembershipPolicy that the options select.
Decision Decide(PausingTime now, const JobState& state, const MembershipOptions& options);

// Returns "5/8 joined, missing worker 3 (host:port, never connected), worker 4 (starting for 12
// s)". A long list is cut and ends with the number of members left out.
std::string RosterLine(PausingTime now, const JobState& state);

// Returns whether the member has joined, is connected and waits for a generation.
bool Ready(const MemberInfo& member);

// Returns the members of a generation that would be formed now, by rank. These are the ready
// members, without spares. Members whose `backoff_until` has not passed are omitted if the others
// are enough.
std::vector<int> NextMembers(PausingTime now, const JobState& state,
                             const MembershipOptions& options);

// Returns the data that the coordinator keeps about a member after its process is lost. Only for
// synchronous members, for which the others wait.
MemberInfo Absent(PausingTime now, const JobState& state, const MemberInfo& lost,
                  const MembershipOptions& options);

// Returns the member with the highest last_step, the first one if several have it. REQUIRES:
// `members` is not empty.
int NewestMember(const JobState& state, const std::vector<int>& members);

// Returns an estimate of the step in which `member` was lost: the highest step that any member
// reported. Members differ by at most one step.
int64_t NewestStep(const JobState& state, const MemberInfo& member);

}  // namespace muster::chief
