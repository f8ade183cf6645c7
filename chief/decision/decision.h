// The coordinator's view of its members, and the decisions that follow from it. Decisions are pure
// functions of (now, state, options), so tests pass the time as an argument. All times are of the
// coordinator's own clock, which pauses while the coordinator's process is suspended. Members
// report times as ages, which become points in time at receipt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/pausing_clock.h"
#include "common/base/phase.h"
#include "common/cluster/task.h"
#include "common/cluster/verdict.h"

namespace muster {

// Options of membership. The loss of a member ends the generation. Training continues in the next
// generation, once all members are present again.
struct MembershipOptions {
  Duration join = std::chrono::minutes(10);    // Until all declared members are ready.
  Duration rejoin = std::chrono::minutes(10);  // The same, after a generation was lost.
  Duration resume = std::chrono::seconds(1);   // Time in which a broken session may be resumed.
  // A member is lost after this long without a heartbeat.
  Duration heartbeat = std::chrono::seconds(10);
  Duration end =
      std::chrono::seconds(30);  // From the finish of the first member to that of the last.
  // Until all members have formed. Must exceed the members' own formation timeout.
  Duration formation = std::chrono::seconds(25);
  int max_failed_formations = 3;
  // After a collective failed and no member is known to be lost, the coordinator waits this long
  // for the root cause. In that time a member counts as lost after `suspect` without a heartbeat.
  Duration root_cause_wait = std::chrono::seconds(3);
  Duration suspect = std::chrono::milliseconds(2500);
  // Timeout for acknowledgements of a failed end. The timeout of a successful end is `end`.
  Duration failure_ack_timeout = std::chrono::seconds(2);
  Duration phase[kNumPhases] = {};  // Zero: no deadline.
  // Elastic. After `grace` without a member, training continues with the present members. They must
  // be at least `min_members` (0: never fewer than declared), include the chief, and be more than
  // half of the previous generation. Members that come later are admitted.
  int min_members = 0;
  Duration grace = std::chrono::seconds(30);
  // A chief that has just started may replace a lost one. Members with newer state than any
  // checkpoint may still be looking for it. Decisions that leave out absent members (a stop,
  // `grace`) wait this long for them.
  Duration survivors = std::chrono::seconds(3);
  // Elastic. New members are admitted once no other one has joined or become ready for `gather`, or
  // `gather_most` after the first one became ready. Members that come in sequence then cost the
  // others one generation instead of many.
  Duration gather = std::chrono::seconds(3);
  Duration gather_most = std::chrono::seconds(15);
  // Elastic. If a process of a task is lost in its first step, the others do not wait for that
  // task. From the second such loss on, the task is not admitted for `backoff`, unless it is
  // needed. The time doubles with each loss, up to `backoff_most`.
  Duration backoff = std::chrono::seconds(10);
  Duration backoff_most = std::chrono::minutes(5);
  // Selects the MembershipPolicy (chief/decision/membership_policy.h). True: a parameter-server
  // job. Once all declared members have joined, each has its own generation. A member that is lost
  // or makes no progress is dropped, and new ones are admitted. The job's end is decided elsewhere
  // (Coordinator::End). The exception is a needed ps that stays away for `rejoin`, or the absence
  // of all workers for as long.
  bool independent = false;
  // The number of ps that may be missing, because others hold copies of their shards.
  int spare_servers = 0;
  // After a restart of the chief, members that hold state of the run are admitted at once. New
  // members are admitted once all are present, or this long after the first.
  Duration newcomers = std::chrono::seconds(4);
};

// An error of one generation, as a member reported it.
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

// A member as the cluster spec declares it.
struct DeclaredMember {
  TaskId task;
  std::string address;  // For messages.
};

// The process of a member, as its Hello and its session describe it.
struct MemberProcess {
  bool joined = false;     // It has an accepted session, or one that may resume.
  bool connected = false;  // Its session is connected.
  bool gone = false;       // The session broke and the process's port refuses connections.
  PausingTime broken_at, last_heard;
  uint64_t incarnation = 0;
  std::string host, devices;
  int64_t pid = 0;  // 0: unknown.
  int num_replicas = 0;
  bool again = false;       // It joined with state of this run.
  uint64_t generation = 0;  // Independent: the generation of this member alone.
  int64_t first_step = 0;   // The first step of its first generation.
  bool settled = false;     // It completed that step.
};

// The last report of that process.
struct MemberReport {
  // The current collective operation, or the failed one. Sequence 0: none.
  std::string collective;
  uint64_t collective_sequence = 0;
  PausingTime collective_since;
  uint64_t collectives_done = 0;  // The highest sequence number of a completed one.

  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0;
  bool waiting = false;  // Waits for a generation.
  PausingTime waiting_since;
  int64_t last_step = 0;
  uint64_t formed_generation = 0;
  std::optional<ReportedError> formation_error, collective_error;
  bool leaving = false;   // It was asked to stop, and the others may continue without it (elastic).
  bool finished = false;  // It left the training loop, at last_step.
  // The loop's exit code: kPreempted after a stop at an agreed step.
  ExitCode outcome = ExitCode::kDone;
  std::string outcome_message;
  PausingTime finished_at;
  bool acknowledged = false;
};

struct MemberState {
  DeclaredMember declared;
  MemberProcess process;  // For a lost member: only the host.
  MemberReport report;    // For a lost member: only phase and step.

  // The coordinator derives the fields below.
  bool in_generation = false;  // In JobState::generation. Independent: in its own generation.
  std::string why_missing = "never connected";
  std::optional<PausingTime> missing_since;  // When its connection was lost.
  // Elastic: the number of consecutive processes of this task that were lost before they settled.
  // The next one is not admitted until `held_until`.
  int quick_losses = 0;
  PausingTime held_until;
  uint64_t admitted = 0;  // Independent: the incarnation that other members rely on.
  std::string abandoned;  // Why the task ended and is not started again. Empty: it may come back.
  bool left = false;      // It left as asked. No member waits for it.
  // Its own failure. May come from a task that never joined.
  std::optional<ReportedFailure> failure;
};

enum class Stage { kJoining, kForming, kRunning, kEnding };
std::string_view StageName(Stage stage);

struct JobState {
  Stage stage = Stage::kJoining;
  PausingTime started, stage_since;
  uint64_t generation = 0;  // The current one, or the last one while joining. 0: none yet.
  // The size of the largest generation of an earlier chief from which a member has joined with its
  // state. 0: no member has.
  int adopted_size = 0;
  // Independent: when a ps was last admitted. Workers wait for servers, but servers do not wait for
  // workers.
  PausingTime servers_since;
  // All steps are done. The rest (passes over other splits, the result) needs no other member, and
  // the others may have left with the job's verdict.
  bool through = false;
  int failed_formations = 0;
  bool stop_requested = false;       // By SIGTERM or SIGINT at any task.
  std::vector<MemberState> members;  // By rank.
  Verdict verdict;                   // Valid once stage is kEnding.
  // Also wait for members that have not joined yet, to send them the verdict.
  bool tell_all = false;
};

enum class Action {
  kWait,
  kForm,   // Enough members are ready: form a generation of them. Independent: of `member`.
  kStart,  // All have formed: start training.
  kDrop,   // `member` is lost but no generation needs it: wait until it joins again.
  kAbortGeneration,  // End the generation and form another one, without `member` if it is set.
  kStop,             // All members stop at an agreed step.
  kEndJob,           // With `verdict`.
  kClose,            // All members have the verdict, or will not receive it any more.
};
struct Decision {
  Action action = Action::kWait;
  std::string reason;  // For the log.
  int member = -1;     // The member concerned. -1: none in particular.
  // kAbortGeneration, kDrop: `member` is connected but makes no progress, or leaves. It receives
  // `verdict`, so that its process ends and another one can replace it.
  bool expel = false;
  Verdict verdict;  // For kEndJob, or about the member of kAbortGeneration.
};

// Decides by the MembershipPolicy that the options select.
Decision Decide(PausingTime now, const JobState& state, const MembershipOptions& options);

// "5/8 joined, missing worker 3 (host:port, never connected), worker 4 (starting for 12 s)". A long
// list is cut, followed by the number of the others.
std::string RosterLine(PausingTime now, const JobState& state);

// True if the member can be part of a generation: joined, connected and waiting for one.
bool Ready(const MemberState& member);

// The members of a generation that is formed now, by rank: those that are ready. Members held back
// for quick losses are left out if the others are enough.
std::vector<int> NextMembers(PausingTime now, const JobState& state,
                             const MembershipOptions& options);

// Returns the state to keep of a member whose process is lost, if the others wait for it.
MemberState Absent(PausingTime now, const JobState& state, const MemberState& lost,
                   const MembershipOptions& options);

// Returns the member with the newest state: the highest last_step, and the first of those.
// REQUIRES: `members` is not empty.
int NewestMember(const JobState& state, const std::vector<int>& members);

// The step in which `member` was lost. Members differ by at most one step, so the highest step
// reported is the best estimate.
int64_t NewestStep(const JobState& state, const MemberState& member);

}  // namespace muster
