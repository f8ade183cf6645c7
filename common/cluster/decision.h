// What a coordinator knows about its members, and what it decides from that: pure functions of
// (now, state, options), so that tests move time by argument. Only monotonic clocks; what members
// tell about time are ages, turned into points in time at receipt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/phase.h"
#include "common/cluster/verdict.h"

namespace muster {

struct DecisionOptions {
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
  // A decider that comes this much later than the time before was itself stopped.
  Duration late = std::chrono::milliseconds(1000);
  // false: the loss of a member ends the job. true: it ends the generation, and training goes on
  // in the next one, once all members are there again.
  bool recover = false;
  // Elastic: after `grace` without a member, training goes on with those that are there, if they
  // are at least `min_members` (0: never fewer than declared), the chief among them, and more than
  // half of the generation before. Whoever comes later is taken in.
  int min_members = 0;
  Duration grace = std::chrono::seconds(30);
  // A parameter-server job: once all declared members have joined, each is on its own. One that is
  // lost, or does not get on, is dropped, and whoever comes is admitted; the job's end is decided
  // elsewhere (Coordinator::End), unless one that is needed stays away for `rejoin`: a ps, or all
  // workers.
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
  MonotonicTime at;
  ExitCode code = ExitCode::kRetryable;
};

struct ReportedFailure {
  ExitCode code = ExitCode::kProgramFailed;
  std::string message, host;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  MonotonicTime at;
};

struct MemberState {
  std::string task, address;  // as declared
  std::string why_missing = "never connected";
  std::optional<MonotonicTime> missing_since;  // of a connection that was lost

  bool in_generation = false;  // of JobState::generation; independent: of its own
  bool joined = false;         // has an accepted session, or one that may resume
  bool connected = false;      // the session stands
  bool gone = false;           // the session broke and the process's port refuses connections
  MonotonicTime broken_at, last_heard;
  uint64_t incarnation = 0;
  uint64_t generation = 0;  // independent: the one of itself alone
  bool again = false;       // came with state of this run
  std::string abandoned;    // has ended, and why nobody starts it again
  std::string host;
  int64_t pid = 0;  // 0: not known

  // The collective operation that it is in, or that failed; sequence 0: none.
  std::string collective;
  uint64_t collective_sequence = 0;
  MonotonicTime collective_since;
  uint64_t collectives_done = 0;  // the highest sequence number of a completed one

  Phase phase = Phase::kStarting;
  MonotonicTime phase_since;
  int64_t step = 0;
  bool waiting = false;  // for a generation
  int64_t last_step = 0;
  uint64_t formed_generation = 0;
  std::optional<ReportedError> formation_error, collective_error;
  bool leaving = false;   // asked to stop where the others may go on without it (elastic)
  bool left = false;      // ... and has left: nobody waits for it
  bool finished = false;  // through with the loop, at last_step
  ExitCode outcome = ExitCode::kDone;  // of the loop: kPreempted after a stop at an agreed step
  std::string outcome_message;
  MonotonicTime finished_at;
  bool acknowledged = false;
  std::optional<ReportedFailure> failure;  // its own; may come from a task that never joined
};

enum class Stage { kJoining, kForming, kRunning, kEnding };
std::string_view StageName(Stage stage);

struct JobState {
  Stage stage = Stage::kJoining;
  MonotonicTime started, stage_since, decided_at;
  uint64_t generation = 0;  // the current one, or the last one while joining; 0: none yet
  // The largest generation that a member came with from an earlier chief: its state lives on here.
  // 0: nobody came with any.
  int adopted_size = 0;
  // Independent: when a ps was admitted last. Workers wait for servers, not the other way round.
  MonotonicTime servers_since;
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
  Verdict verdict;  // kEndJob, or of the expelled member
};

Decision Decide(MonotonicTime now, const JobState& state, const DecisionOptions& options);

// To be called before each Decide. If the decider itself was late (stopped, an overloaded host),
// nobody is judged for that gap: all deadlines move by it. Sets decided_at. Returns the gap.
Duration AllowForLateness(MonotonicTime now, JobState* state, const DecisionOptions& options);

// "5/8 joined, missing worker 3 (host:port, never connected), worker 4 (starting for 12 s)"; of
// many that are missing, the first ones and how many others.
std::string RosterLine(MonotonicTime now, const JobState& state);

// Whether it can be part of a generation: joined, connected and waiting for one.
bool Ready(const MemberState& member);

// Of the members that are ready, the one that holds the newest state: the highest last_step, the
// first of those. -1 if none is ready.
int NewestMember(const JobState& state);

// The step in which `member` was lost. All are in the same one, or one apart: who was heard last
// knows best which.
int64_t NewestStep(const JobState& state, const MemberState& member);

}  // namespace muster
