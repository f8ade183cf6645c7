// What a coordinator knows about its members, and what it decides from that: pure functions of
// (now, state, options), so that tests move time by argument. Only the coordinator's own clock,
// which pauses while the coordinator is held up; what members tell about time are ages, turned into
// points in time at receipt.
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

// The loss of a member ends the generation; training goes on in the next one, once all members are
// there again.
struct MembershipOptions {
  Duration join = std::chrono::minutes(10);       // until all declared members are ready
  Duration rejoin = std::chrono::minutes(10);     // the same after a generation was lost
  Duration resume = std::chrono::seconds(1);      // a broken session may come back
  Duration heartbeat = std::chrono::seconds(10);  // silence after which a member is lost
  Duration end = std::chrono::seconds(30);        // from the first to the last one to finish
  Duration formation = std::chrono::seconds(25);  // until all have formed; above the members' own
  int max_failed_formations = 3;
  // A collective failed, nobody is known to be lost: the survivors' errors wait this long for the
  // root cause, and whoever was silent for `suspect` by then is it.
  Duration blame = std::chrono::seconds(3);
  Duration suspect = std::chrono::milliseconds(2500);
  // On a failure, acknowledgements are waited for this long (`end` when all went well).
  Duration farewell = std::chrono::seconds(2);
  Duration phase[kNumPhases] = {};  // zero: no deadline
  // Elastic: after `grace` without a member, training goes on with those that are there, if they
  // are at least `min_members` (0: never fewer than declared), the chief among them, and more than
  // half of the generation before. Whoever comes later is taken in.
  int min_members = 0;
  Duration grace = std::chrono::seconds(30);
  // A chief that has just started may have taken a lost one's place, and those who hold newer state
  // than any checkpoint may still be looking for it. Whatever would do without members that have
  // not come yet (a stop, `grace`) waits so long for them.
  Duration survivors = std::chrono::seconds(3);
  // ... when no other one has joined or become ready for `gather`, or `gather_most` after the first
  // one became ready: those that come one after the other cost the rest one generation, not many.
  Duration gather = std::chrono::seconds(3);
  Duration gather_most = std::chrono::seconds(15);
  // A task whose processes are lost in their first step is not waited for, and from the second time
  // on it is not taken in again for `backoff`, twice as long each time, unless it is needed.
  Duration backoff = std::chrono::seconds(10);
  Duration backoff_most = std::chrono::minutes(5);
  // Which MembershipPolicy (common/cluster/membership_policy.h). True: a parameter-server job. Once
  // all declared members have joined, each is on its own. One that is lost, or does not get on, is
  // dropped, and whoever comes is admitted; the job's end is decided elsewhere (Coordinator::End),
  // unless one that is needed stays away for `rejoin`: a ps, or all workers.
  bool independent = false;
  int spare_servers = 0;  // so many ps may be missing: what they hold is on others too
  // After a restart of the chief, those that hold state of the run are admitted at once, new ones
  // once all are there, or this long after the first.
  Duration newcomers = std::chrono::seconds(4);
};

// The error of one generation as a member reported it.
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

// What the cluster spec says of a member.
struct DeclaredMember {
  TaskId task;
  std::string address;  // for messages
};

// The process that is a member, as its Hello and its session tell.
struct MemberProcess {
  bool joined = false;     // has an accepted session, or one that may resume
  bool connected = false;  // the session stands
  bool gone = false;       // the session broke and the process's port refuses connections
  PausingTime broken_at, last_heard;
  uint64_t incarnation = 0;
  std::string host, devices;
  int64_t pid = 0;  // 0: not known
  int num_replicas = 0;
  bool again = false;       // came with state of this run
  uint64_t generation = 0;  // independent: the one of itself alone
  int64_t first_step = 0;   // of its first generation
  bool settled = false;     // it got through that step
};

// What that process reported last.
struct MemberReport {
  // The collective operation that it is in, or that failed; sequence 0: none.
  std::string collective;
  uint64_t collective_sequence = 0;
  PausingTime collective_since;
  uint64_t collectives_done = 0;  // the highest sequence number of a completed one

  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0;
  bool waiting = false;  // for a generation
  PausingTime waiting_since;
  int64_t last_step = 0;
  uint64_t formed_generation = 0;
  std::optional<ReportedError> formation_error, collective_error;
  bool leaving = false;   // asked to stop where the others may go on without it (elastic)
  bool finished = false;  // through with the loop, at last_step
  ExitCode outcome = ExitCode::kDone;  // of the loop: kPreempted after a stop at an agreed step
  std::string outcome_message;
  PausingTime finished_at;
  bool acknowledged = false;
};

struct MemberState {
  DeclaredMember declared;
  MemberProcess process;  // of one that is lost: the host
  MemberReport report;    // of one that is lost: phase and step

  // The rest is what the coordinator makes of it.
  bool in_generation = false;  // of JobState::generation; independent: of its own
  std::string why_missing = "never connected";
  std::optional<PausingTime> missing_since;  // of a connection that was lost
  // How many processes in a row of this task were lost before they had settled (elastic), and until
  // when the next one is not taken in.
  int quick_losses = 0;
  PausingTime held_until;
  uint64_t admitted = 0;                   // independent: the incarnation that others count on
  std::string abandoned;                   // has ended, and why nobody starts it again
  bool left = false;                       // it left, as asked: nobody waits for it
  std::optional<ReportedFailure> failure;  // its own; may come from a task that never joined
};

enum class Stage { kJoining, kForming, kRunning, kEnding };
std::string_view StageName(Stage stage);

struct JobState {
  Stage stage = Stage::kJoining;
  PausingTime started, stage_since;
  uint64_t generation = 0;  // the current one, or the last one while joining; 0: none yet
  // The largest generation that a member came with from an earlier chief: its state lives on here.
  // 0: nobody came with any.
  int adopted_size = 0;
  // Independent: when a ps was admitted last. Workers wait for servers, not the other way round.
  PausingTime servers_since;
  // All steps are done: what is left (passes over other splits, the result) needs nobody else, and
  // the others may have left with the job's verdict.
  bool through = false;
  int failed_formations = 0;
  bool stop_requested = false;       // by SIGTERM or SIGINT somewhere
  std::vector<MemberState> members;  // by rank
  Verdict verdict;                   // once stage is kEnding
  bool tell_all = false;  // then also those that have not come yet are waited for, to be told
};

enum class Action {
  kWait,
  kForm,             // enough are ready: form a generation of them; independent: of `member`
  kStart,            // all have formed it: train
  kDrop,             // `member` is not there after all, and is missed by nobody: wait for it again
  kAbortGeneration,  // and form another one, `member` (if any) being dropped
  kStop,             // all stop at an agreed step
  kEndJob,           // with `verdict`
  kClose,            // all have the verdict, or will not come for it any more
};
struct Decision {
  Action action = Action::kWait;
  std::string reason;  // for the log
  int member = -1;     // whom it is about; -1: nobody in particular
  // kAbortGeneration, kDrop: `member` is there but does not get on, or leaves. It is told
  // `verdict`, so that its process ends and another one can take its place.
  bool expel = false;
  Verdict verdict;  // kEndJob, or about the member of kAbortGeneration
};

// By the MembershipPolicy of the options.
Decision Decide(PausingTime now, const JobState& state, const MembershipOptions& options);

// "5/8 joined, missing worker 3 (host:port, never connected), worker 4 (starting for 12 s)"; of
// many that are missing, the first ones and how many others.
std::string RosterLine(PausingTime now, const JobState& state);

// Whether it can be part of a generation: joined, connected and waiting for one.
bool Ready(const MemberState& member);

// Whom a generation that is formed now has, by rank: who is ready, without those that are held back
// for their quick losses where the others are enough.
std::vector<int> NextMembers(PausingTime now, const JobState& state,
                             const MembershipOptions& options);

// What is left of a member whose process is lost, where the others wait for it.
MemberState Absent(PausingTime now, const JobState& state, const MemberState& lost,
                   const MembershipOptions& options);

// Of these members the one that holds the newest state: the highest last_step, the first of those.
// REQUIRES: there is one.
int NewestMember(const JobState& state, const std::vector<int>& members);

// The step in which `member` was lost. All are in the same one, or one apart: who was heard last
// knows best which.
int64_t NewestStep(const JobState& state, const MemberState& member);

}  // namespace muster
