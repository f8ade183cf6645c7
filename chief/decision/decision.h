// JobState is the coordinator's data about a job and its members. The coordinator is the part of
// the chief that supervises the members. In synchronous training, the members are the chief and the
// workers. In a parameter-server job, the members are the workers and the ps tasks. A generation is
// a period in which a fixed set of members trains together. Each generation has a number, which is
// above the numbers of all earlier generations.
//
// The functions in this header compute the coordinator's next action. They are pure functions of
// the current time, the state and the options. All times come from the coordinator's clock, which
// pauses while the coordinator's process is suspended. Members report ages, such as "0.2 s ago".
// When a report arrives, the coordinator converts each age to a time of its own clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/pausing_clock.h"
#include "common/base/phase.h"
#include "common/cluster/task.h"
#include "common/cluster/verdict.h"
#include "common/job/timeouts.h"

namespace muster::chief {

// Timeouts and rules of membership. By default the loss of a member ends the generation, and the
// next generation begins once all members are present again. In an elastic job, training can
// continue with fewer members than the cluster spec declares.
//
// A session is the gRPC stream between a member and the coordinator. Of the timeouts of the job:
//   join, rejoin  The time until all declared members are ready for the first generation, or for a
//                 later one.
//   resume        A member is lost if its session breaks and does not resume within this time.
//   end           Once a member has finished training, each other member must finish training
//                 within this time. The time restarts when the other member enters a new phase. The
//                 timeout does not apply while the other member saves or evaluates.
//   formation     Must exceed the members' formation timeout: the caller adds to the default.
struct MembershipOptions : Timeouts {
  int max_failed_formations = 3;  // The job ends after this many failed formations in a row.
  // If a collective operation fails and no member is known to be lost, the coordinator waits this
  // long for the root cause. During this wait, a member also counts as lost if it has sent no
  // heartbeat for the time `suspect`.
  Duration root_cause_wait = std::chrono::seconds(3);
  Duration suspect = std::chrono::milliseconds(2500);
  // The verdict is the outcome of the job. The coordinator sends it to all members, which
  // acknowledge it. After a failure, `failure_ack_timeout` is the timeout for these
  // acknowledgements. After a success the timeout is `end`.
  Duration failure_ack_timeout = std::chrono::seconds(2);
  // A job is elastic if `min_members` is not 0. If a member is missing for `grace`, training
  // continues with the present members. These members must include the chief. Their number must be
  // at least `min_members` and more than half of the previous generation. The coordinator also
  // admits members that join later.
  int min_members = 0;
  Duration grace = std::chrono::seconds(30);
  // The number of declared members that do not train, and wait to replace a lost member.
  int spares = 0;
  // A new chief may replace a lost chief. Members may then hold newer state than any checkpoint,
  // and may need time to find the new chief. For this long after its start, the new chief waits for
  // absent members: it does not stop the job and does not apply `grace`.
  Duration survivors = std::chrono::seconds(3);
  // Elastic jobs: the coordinator admits new members together, in one new generation. It waits
  // while another member is joining. If members are still missing, it waits until the time `gather`
  // has passed since the last new member became ready. The wait ends at most `gather_most` after
  // the first new member became ready.
  Duration gather = std::chrono::seconds(3);
  Duration gather_most = std::chrono::seconds(15);
  // Elastic jobs: if the process of a task is lost in its first step, the other members do not wait
  // for this task. After the second such loss in a row, the coordinator does not admit the task for
  // `backoff`. Each further loss doubles this time, up to `max_backoff`. The coordinator admits the
  // task earlier if the other present members are too few to train.
  Duration backoff = std::chrono::seconds(10);
  Duration max_backoff = std::chrono::minutes(5);
  // Selects the MembershipPolicy (chief/decision/membership_policy.h). True for a parameter-server
  // job, whose members are called independent: each member has its own generation. The coordinator
  // first waits until all declared members have joined. After that, it drops a member that is lost
  // or makes no progress, and admits a new process of this task at once. The Director
  // (chief/parameter_server/director/director.h) ends the job when the work is done. The
  // coordinator ends the job if more than `spare_servers` ps tasks, or all workers, are missing for
  // `rejoin`.
  bool independent = false;
  // The number of ps tasks that may be missing, because other ps tasks hold copies of their data.
  int spare_servers = 0;
  // Independent members, after a restart of the chief. Members that hold state of the run are
  // admitted at once. Members without state are admitted once all members are present, or when this
  // time has passed since the first admission.
  Duration stateless_wait = std::chrono::seconds(4);
};

// An error that a member reported about one generation.
struct ReportedError {
  uint64_t generation = 0;
  std::string message;
  PausingTime at;
  ExitCode code = ExitCode::kRetryable;
};

// A failure that a task reported about itself. This failure ends the job.
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
  std::string address;  // The task's address in the cluster spec, for messages.
};

// The current process of a member. The data comes from the process's session and from its Hello,
// the first message of the session.
struct MemberProcess {
  // True if the coordinator has accepted the process's session. A broken session still counts while
  // it may resume.
  bool joined = false;
  bool connected = false;  // True if the session is connected.
  // True if the session is broken and the process has ended. A sign of this is, for example, that
  // the process's data port refuses connections.
  bool gone = false;
  PausingTime broken_at, last_heard;
  uint64_t incarnation = 0;  // A random number that identifies the process.
  std::string host, devices;
  int64_t pid = 0;  // 0: unknown.
  int num_replicas = 0;
  bool again = false;       // True if the process joined with state of this run.
  uint64_t generation = 0;  // Independent members: the member's own generation.
  // Synchronous members: the last generation that was formed with this process. 0: none.
  uint64_t last_generation = 0;
  int64_t first_step = 0;  // The first step of last_generation.
  // True if the process has completed its first step, or joined with state of this run.
  bool settled = false;
};

// The last report of a member's process.
struct LastReport {
  // The collective operation that the member is in, or that failed. Sequence number 0: none.
  std::string collective;
  uint64_t collective_sequence = 0;
  PausingTime collective_since;
  uint64_t collectives_done = 0;  // The sequence number of the last completed collective.

  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0;
  bool waiting = false;  // True if the member waits for a generation.
  PausingTime waiting_since;
  int64_t last_step = 0;  // The last step that the member's state includes.
  // The last generation in which the member has connected to the other members.
  uint64_t formed_generation = 0;
  std::optional<ReportedError> formation_error, collective_error;
  // Elastic jobs and jobs with spares: true if the member was asked to stop. The other members may
  // continue without it.
  bool leaving = false;
  bool finished = false;  // True if the member's training loop has ended after last_step.
  // The exit code with which the training loop ended. The code is kPreempted if the loop has
  // stopped at a step that all members agreed on.
  ExitCode outcome = ExitCode::kDone;
  std::string outcome_message;
  PausingTime finished_at;
  bool acknowledged = false;  // True if the member has acknowledged the verdict.
};

struct MemberInfo {
  DeclaredMember declared;
  MemberProcess process;  // For a lost member, only `host` is set.
  LastReport report;      // For a lost member, only `phase` and `step` are set.

  // The coordinator sets the fields below.
  //
  // Synchronous members: true if a process of the task was in JobState::generation, even if this
  // process is lost. Independent members: true if the process is in process.generation.
  bool in_generation = false;
  std::string why_missing = "never connected";
  std::optional<PausingTime> missing_since;  // When the process was lost.
  // Elastic jobs: the number of consecutive processes of this task that were lost in their first
  // step. If enough other members are ready, the next process is not admitted until
  // `backoff_until`.
  int quick_losses = 0;
  PausingTime backoff_until;
  uint64_t admitted = 0;  // Independent members: the admitted incarnation. 0: none.
  // Why no further process of the task will start. Empty if a further process may start.
  std::string abandoned;
  // True if the member left because it was asked to stop. The other members do not wait for it.
  bool left = false;
  // The failure that the task reported. A task can report a failure even if it has not joined.
  std::optional<ReportedFailure> failure;
};

// kJoining: the coordinator waits until enough members are ready for a generation. kForming: the
// members of the generation connect to each other. kRunning: they train. kEnding: the job has a
// verdict.
enum class JobStage { kJoining, kForming, kRunning, kEnding };
std::string_view StageName(JobStage stage);

struct JobState {
  JobStage stage = JobStage::kJoining;
  PausingTime started, stage_since;
  // The number of the newest generation. In stage kJoining this generation has ended. 0: none.
  uint64_t generation = 0;
  // Members that join may hold state from a generation of an earlier chief. `adopted_size` is the
  // number of members of the largest such generation, 0 if there is none.
  int adopted_size = 0;
  // Independent members: the time at which a ps task was last admitted.
  PausingTime servers_since;
  // True if the job resumed from the state after its last step. Only the chief has work left, such
  // as the test pass and the result. The other members may have left under the earlier chief.
  bool all_steps_done = false;
  int failed_formations = 0;
  bool stop_requested = false;      // For example, a task received SIGTERM.
  std::vector<MemberInfo> members;  // Indexed by rank.
  Verdict verdict;                  // Valid once stage is kEnding.
  // Describes the last connection that was refused because the peer did not prove its identity. ""
  // if there was none.
  std::string last_refusal;
  // True if the coordinator waits until all declared members have joined and received the verdict.
  bool tell_all = false;
};

enum class Action {
  kWait,
  // Form a generation, because enough members are ready. For independent members, the generation
  // contains only Decision::member.
  kForm,
  kStart,  // Start training, because all members of the generation have connected.
  // Remove Decision::member and wait for another process of its task. The other members'
  // generations continue.
  kDrop,
  // End the current generation, so that the next one can form. Remove Decision::member, if set.
  kAbortGeneration,
  kStop,    // Tell all members to stop at an agreed step.
  kEndJob,  // End the job with Decision::verdict.
  // End the wait for acknowledgements of the verdict. Either all members that can receive the
  // verdict have acknowledged it, or the timeout has passed.
  kClose,
};
// The next action of the coordinator.
struct Decision {
  Action action = Action::kWait;
  std::string reason;  // For the log.
  int member = -1;     // The member that the action concerns. -1: none.
  // For kAbortGeneration and kDrop: true if `member` is connected, but makes no progress or leaves.
  // The coordinator then sends `verdict` to the member's process, which exits. Another process can
  // replace this process.
  bool expel = false;
  // kEndJob: the verdict of the job. kAbortGeneration and kDrop: a verdict on `member`.
  Verdict verdict;
};

// Calls Decide of the MembershipPolicy that the options select.
Decision Decide(PausingTime now, const JobState& state, const MembershipOptions& options);

// Returns a line such as "5/8 joined, missing worker 3 (host:port, never connected), worker 4
// (starting for 12 s)". A long list is cut and ends with the number of omitted members.
std::string RosterLine(PausingTime now, const JobState& state);

// Returns whether the member has joined, is connected and waits for a generation.
bool Ready(const MemberInfo& member);

// Returns the members that a generation would have if it were formed now, ordered by rank. These
// are the ready members, except those that remain spares. Members whose `backoff_until` is in the
// future are omitted if there are enough other members.
std::vector<int> NextMembers(PausingTime now, const JobState& state,
                             const MembershipOptions& options);

// Returns the data that the coordinator keeps about a member after its process is lost. Copies
// in_generation from `lost`: a generation of synchronous members still includes a lost member. For
// independent members, the caller sets in_generation to false.
MemberInfo Absent(PausingTime now, const JobState& state, const MemberInfo& lost,
                  const MembershipOptions& options);

// Returns the member with the highest last_step. If several members have this last_step, returns
// the first of these members. REQUIRES: `members` is not empty.
int NewestMember(const JobState& state, const std::vector<int>& members);

// Returns an estimate of the step in which `member` was lost: the highest step that any member of
// the generation reported. Members differ by at most one step.
int64_t NewestStep(const JobState& state, const MemberInfo& member);

}  // namespace muster::chief
