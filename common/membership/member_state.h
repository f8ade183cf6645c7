// The state machine of a member. Apply is a pure function of (rules, now, state, event). Tests pass
// any time and examine single transitions. common/membership/member.cc passes it the events and
// carries out the returned actions. docs/control_plane.md shows the transitions as a table, which a
// test compares with this file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/pausing_clock.h"
#include "common/membership/member_events.h"
#include "common/session/chief_silence.h"

namespace muster::membership {

struct MemberTimeouts {
  Duration join = std::chrono::minutes(10);    // Limit to reach the chief for the first time.
  Duration rejoin = std::chrono::minutes(10);  // Limit to reach the chief after it was lost.
  // Limit to open the next session after a session broke. The chief is lost after it.
  Duration resume = std::chrono::seconds(1);
  Duration heartbeat = std::chrono::seconds(10);  // The chief is lost after this silence.
  Duration heartbeat_interval = std::chrono::seconds(1);
  // Limit to wait for the coordinator's verdict after a collective operation failed.
  Duration explain = std::chrono::seconds(5);
  // Limit to report a failure of this process to the chief. After a stop request, also the limit to
  // wait for a lost chief.
  Duration report = std::chrono::seconds(10);
  // Limit for the loop to return after its generation is over. A phase with a higher limit of its
  // own extends it. A process whose loop does not return hangs, and MemberOptions::on_stuck ends
  // it.
  Duration abort = std::chrono::minutes(1);
  Duration phase[kNumPhases] = {};  // The limit of each phase. Zero: none.
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);
};

// The state of the process in the job. A generation is *over* after the coordinator has ended it or
// the chief was lost.
enum class Stage {
  kIdle,        // The process is in no generation, and its loop has not asked for one.
  kWaiting,     // The loop waits for a generation.
  kForming,     // The coordinator has offered a generation. The loop makes its links.
  kFormed,      // The links are made or have failed. The loop waits for the start.
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
  kClosing,  // This side has given the session up. Later messages except a verdict are ignored.
  kBroken,   // The session is closed. The next one is due at `next_attempt`.
};
inline constexpr int kNumSessionStages = 5;
inline constexpr std::string_view kSessionStageNames[kNumSessionStages] = {
    "None", "Connecting", "Up", "Closing", "Broken"};
inline std::string_view StageName(SessionStage stage) {
  return kSessionStageNames[static_cast<int>(stage)];
}

struct SessionState {
  SessionStage stage = SessionStage::kNone;
  // When a session closed for the first time since the last welcome. A welcome resets it.
  std::optional<PausingTime> broken_since;
  PausingTime last_heard, last_sent, next_attempt;
  std::string last_error = "no answer yet";  // Why the chief cannot be reached.
};

struct GenerationError {
  uint64_t generation = 0;
  std::string message;
  ExitCode code = ExitCode::kDone;
};

// The process's state as sent in each report.
struct MemberReport {
  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0, last_step = 0;
  uint64_t formed = 0;  // The last generation whose links this process made.
  std::optional<GenerationError> formation_error, collective_error;
  ExitCode outcome = ExitCode::kDone;  // The loop's exit code, set when the loop has finished.
  std::string outcome_message;
  bool stop_requested = false;   // This process asks all members to stop at an agreed step.
  bool leave_requested = false;  // This process asks to leave. The others continue.
};

struct MemberState {
  explicit MemberState(PausingTime now = {}, Duration heartbeat = std::chrono::seconds(10))
      : silence(heartbeat) {
    report.phase_since = session.next_attempt = now;
  }

  Stage stage = Stage::kIdle;
  SessionState session;
  MemberReport report;
  // True if the next Tick is due at once.
  bool changed = false;

  // The time since which this process looks for the chief. Absent before Join.
  std::optional<PausingTime> looking_since;
  // The time since which a stop request waits for a lost chief.
  std::optional<PausingTime> stop_since;
  PausingTime next_line;  // The time at which the next log line about a lost chief is due.
  ChiefSilence silence;
  int64_t chief_pid = 0;
  std::optional<Welcome> welcome;

  std::shared_ptr<const Roster> roster;  // The roster of `generation`.
  uint64_t generation = 0;               // The newest offered generation. 0: none yet.
  uint64_t over = 0;                     // The newest generation that is over.
  std::string why_over;
  // The coordinator has started `generation`. This process may still be making its links.
  bool start_given = false;
  std::optional<PausingTime> over_since;  // The time since which the loop must return.
  bool stuck = false;                     // on_stuck was called.
  std::optional<Verdict> verdict;

  bool InGeneration() const { return generation > over; }
  // Returns whether members of generation `id` must leave it.
  bool IsOver(uint64_t id) const { return verdict.has_value() || over >= id; }
};

struct MemberRules {
  std::string task, host;
  std::string chief_task, chief_address;
  bool is_chief = false;
  bool may_leave = false;  // The job is elastic: a stop request concerns only this member.
  MemberTimeouts timeouts;
};

struct MemberChange {
  MemberState state;
  std::vector<MemberAction> actions;
};
MemberChange Apply(const MemberRules& rules, PausingTime now, MemberState state, MemberEvent event);

// Returns the status with which this process ends after the verdict.
absl::Status VerdictStatus(const MemberRules& rules, const Verdict& verdict);

}  // namespace muster::membership
