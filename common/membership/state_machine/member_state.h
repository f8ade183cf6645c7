// The state machine of a member. Apply is a pure function: it takes the state, the time and an
// event, and returns the new state and a list of actions. common/membership/member.cc calls Apply
// and carries out the actions. docs/control_plane.md has a table of the transitions, which a test
// compares with Apply.
//
// member_events.h defines the terms: member, coordinator, session, generation, loop, verdict.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/pausing_clock.h"
#include "common/job/timeouts.h"
#include "common/membership/state_machine/member_events.h"
#include "common/session/chief_silence.h"

namespace muster::membership {

// Of the timeouts of the job:
//   join, rejoin       Limits to reach the chief for the first time, and to reach a lost chief.
//   resume, heartbeat  A process in a generation regards the chief as lost in two cases. First, the
//                      session has been broken for the time `resume`. Second, the chief has sent no
//                      message for the time `heartbeat`.
//   abort, phase       Limits for the loop to return after its generation is over or the job has
//                      ended. The time counts from this event or from the start of the current
//                      phase, whichever is later. After the limit, the Member calls
//                      MemberOptions::on_stuck, which ends the process. If the limit of the current
//                      phase is higher than `abort`, the higher limit applies, except in the phase
//                      `reduce`. In the phase `save`, the time is unlimited without a limit in
//                      `phase`.
struct MemberTimeouts : Timeouts {
  Duration heartbeat_interval = std::chrono::seconds(1);  // The interval of this process's reports.
  // How long Membership::Explain waits for the coordinator after a collective operation failed.
  Duration explain = std::chrono::seconds(5);
  // How long this process tries to report its own failure to the chief. Also the limit of the
  // search for a lost chief after a stop request.
  Duration report = std::chrono::seconds(10);
};

// The state of the process in the job. A generation is over after the coordinator has ended it, or
// after this process has lost the chief.
enum class Stage {
  kIdle,        // The process is in no generation, and the loop has not asked for one.
  kWaiting,     // The loop waits for a generation.
  kForming,     // The coordinator has offered a generation. The loop makes the communicators.
  kFormed,      // The communicators are made, or could not be made. The loop waits for the start.
  kRunning,     // The loop trains.
  kExplaining,  // The loop stopped with an error. The coordinator has not ended the generation yet.
  kFinished,    // The loop has finished and waits for the verdict.
  kOver,        // The generation is over. The loop must return from it.
  kEnding,      // The job has a verdict. The loop must return.
  kEnded,       // The job has a verdict, and the loop does not run.
};
inline constexpr int kNumStages = 10;
inline constexpr std::string_view kStageNames[kNumStages] = {
    "Idle",       "Waiting",  "Forming", "Formed", "Running",
    "Explaining", "Finished", "Over",    "Ending", "Ended"};
inline std::string_view StageName(Stage stage) { return kStageNames[static_cast<int>(stage)]; }

// The state of the session with the coordinator.
enum class SessionStage {
  kNone,        // No session was opened yet.
  kConnecting,  // The session is open, but the welcome has not arrived.
  kUp,
  kClosing,  // This process is closing the session. It ignores all messages except a verdict.
  kBroken,   // The session is closed. The next session is opened at SessionState::next_attempt.
};
inline constexpr int kNumSessionStages = 5;
inline constexpr std::string_view kSessionStageNames[kNumSessionStages] = {
    "None", "Connecting", "Up", "Closing", "Broken"};
inline std::string_view StageName(SessionStage stage) {
  return kSessionStageNames[static_cast<int>(stage)];
}

struct SessionState {
  SessionStage stage = SessionStage::kNone;
  // The time of the first SessionClosed event since the last welcome. Before the first welcome: the
  // time of the first SessionClosed event. Absent: there was no such event.
  std::optional<PausingTime> broken_since;
  PausingTime last_heard, last_sent, next_attempt;
  std::string last_error = "no answer yet";  // Why the last session ended or failed.
};

// An error in the formation or the collective operations of a generation.
struct GenerationError {
  uint64_t generation = 0;
  std::string message;
  ExitCode code = ExitCode::kDone;
};

// The part of the state that this process sends to the coordinator in each report.
struct MemberReport {
  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  // The current step, and the newest completed step.
  int64_t step = 0, last_step = 0;
  uint64_t formed = 0;  // The last generation whose communicators this process made.
  std::optional<GenerationError> formation_error, collective_error;
  ExitCode outcome = ExitCode::kDone;  // The exit code of the loop. Valid in Stage::kFinished.
  std::string outcome_message;
  bool stop_requested = false;  // True if all members must stop at an agreed step.
  // True if this process asks to leave, while the other members continue.
  bool leave_requested = false;
};

struct MemberState {
  explicit MemberState(PausingTime now = {}, Duration heartbeat = Timeouts().heartbeat)
      : silence(heartbeat) {
    report.phase_since = session.next_attempt = now;
  }

  Stage stage = Stage::kIdle;
  SessionState session;
  MemberReport report;
  // True if the Member must make the next Tick at once, to send a report.
  bool changed = false;

  // The start of the latest search for the chief. Absent until the loop first calls Join or
  // NextGeneration.
  std::optional<PausingTime> looking_since;
  // The first time at which a stop was requested while the session was broken.
  std::optional<PausingTime> stop_since;
  PausingTime next_line;  // The time of the next log line about the search for the chief.
  ChiefSilence silence;
  int64_t chief_pid = 0;
  std::optional<JoinReply> welcome;

  std::shared_ptr<const Roster> roster;  // The roster of `generation`.
  uint64_t generation = 0;               // The newest offered generation. 0: none yet.
  uint64_t over = 0;                     // The newest generation that is over. 0: none yet.
  std::string why_over;                  // Why the generation `over` ended.
  // True if the coordinator has started `generation`.
  bool start_given = false;
  // The time at which the loop's generation ended or the verdict arrived, whichever was first.
  std::optional<PausingTime> over_since;
  bool stuck = false;  // True if NotifyStuck was returned.
  std::optional<Verdict> verdict;

  bool InGeneration() const { return generation > over; }
  // Returns true if a loop in generation `id` must return.
  bool IsOver(uint64_t id) const { return verdict.has_value() || over >= id; }
};

// The constant inputs of Apply. MemberOptions explains the fields.
struct MemberRules {
  std::string task, host;
  std::string chief_task, chief_address;
  bool is_chief = false;
  bool may_leave = false;
  MemberTimeouts timeouts;
};

struct MemberChange {
  MemberState state;
  std::vector<MemberAction> actions;
};
MemberChange Apply(const MemberRules& rules, PausingTime now, MemberState state, MemberEvent event);

// Returns the status with which this process ends after the verdict. The message is the line that
// this process must print last.
absl::Status VerdictStatus(const MemberRules& rules, const Verdict& verdict);

}  // namespace muster::membership
