// A member's state, and how an event changes it. Apply is a pure function of (rules, now, state,
// event), so tests move time by argument and examine single transitions.
// common/membership/member.cc feeds it events and carries out its actions. docs/control_plane.md
// shows it as a table, which a test checks against this file.
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

namespace muster {

struct MemberTimeouts {
  Duration join = std::chrono::minutes(10);    // Limit to reach the chief for the first time.
  Duration rejoin = std::chrono::minutes(10);  // Limit to reach the chief again after it was lost.
  // Limit to reach the chief again after a broken session.
  Duration resume = std::chrono::seconds(1);
  Duration heartbeat = std::chrono::seconds(10);  // The chief is lost after this silence.
  Duration heartbeat_interval = std::chrono::seconds(1);
  // Limit for a verdict after a collective operation failed.
  Duration explain = std::chrono::seconds(5);
  // Time to report an own failure to the chief, or, after a stop request, for a lost chief to
  // return.
  Duration report = std::chrono::seconds(10);
  // Time from the end of a generation until the loop returns from it. Longer if the loop is in a
  // phase that may take longer. A process whose loop does not return hangs, and is ended
  // (MemberOptions::on_stuck).
  Duration abort = std::chrono::minutes(1);
  Duration phase[kNumPhases] = {};  // Zero: no limit of its own.
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);
};

namespace membership {

// The state of the process in the job. A generation is *over* once the coordinator, or the loss of
// the chief, has ended it.
enum class Stage {
  kIdle,        // The process is in no generation, and its loop does not ask for one.
  kWaiting,     // The loop waits for a generation.
  kForming,     // A generation is offered; the loop makes its links.
  kFormed,      // The links are made or have failed; the loop waits for the start.
  kRunning,     // The loop trains.
  kExplaining,  // The loop stopped with an error; the coordinator has not ended the generation yet.
  kFinished,    // The loop has finished and waits for the verdict.
  kOver,        // The generation is over; the loop must return from it.
  kEnding,      // There is a verdict; the loop must return.
  kEnded,       // There is a verdict, and no loop to wait for.
};
inline constexpr int kNumStages = 10;
inline constexpr std::string_view kStageNames[kNumStages] = {
    "Idle",       "Waiting",  "Forming", "Formed", "Running",
    "Explaining", "Finished", "Over",    "Ending", "Ended"};
inline std::string_view StageName(Stage stage) { return kStageNames[static_cast<int>(stage)]; }

// The state of the session with the coordinator.
enum class SessionStage {
  kNone,        // Never opened.
  kConnecting,  // Opened; no welcome yet.
  kUp,
  kClosing,  // Given up by this side; later messages do not count, except a verdict.
  kBroken,   // Closed; the next session is due at `next_attempt`.
};
inline constexpr int kNumSessionStages = 5;
inline constexpr std::string_view kSessionStageNames[kNumSessionStages] = {
    "None", "Connecting", "Up", "Closing", "Broken"};
inline std::string_view StageName(SessionStage stage) {
  return kSessionStageNames[static_cast<int>(stage)];
}

struct SessionState {
  SessionStage stage = SessionStage::kNone;
  std::optional<PausingTime> broken_since;  // There has been no welcome since then.
  PausingTime last_heard, last_sent, next_attempt;
  std::string trouble = "no answer yet";  // Why the chief is not reached.
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
  uint64_t formed = 0;  // The last generation whose links it made.
  std::optional<GenerationError> formation_error, collective_error;
  ExitCode outcome = ExitCode::kDone;  // The loop's exit code, once it has finished.
  std::string outcome_message;
  bool stop_requested = false;   // All members stop at an agreed step.
  bool leave_requested = false;  // Only this process leaves.
};

struct MemberState {
  explicit MemberState(PausingTime now = {}, Duration heartbeat = std::chrono::seconds(10))
      : silence(heartbeat) {
    report.phase_since = session.next_attempt = now;
  }

  Stage stage = Stage::kIdle;
  SessionState session;
  MemberReport report;
  // The next Tick is due at once, because there is something to send or to do.
  bool changed = false;

  // Looks for the chief since then; absent: it was not asked to.
  std::optional<PausingTime> looking_since;
  std::optional<PausingTime> stop_since;  // Asked to stop while the chief is away.
  PausingTime next_line;                  // The time of the next log line while the chief is away.
  ChiefSilence silence;
  int64_t chief_pid = 0;
  std::optional<Welcome> welcome;

  std::shared_ptr<const Roster> roster;  // The roster of `generation`.
  uint64_t generation = 0;               // The newest that was offered; 0: none yet.
  uint64_t over = 0;                     // The newest that is over.
  std::string why_over;
  bool start_given = false;  // The start of `generation` was given. Its links may not be made yet.
  std::optional<PausingTime> over_since;  // The loop must return since then.
  bool stuck = false;                     // on_stuck was called.
  std::optional<Verdict> verdict;

  bool InGeneration() const { return generation > over; }
  // Returns whether members of that generation must leave it.
  bool IsOver(uint64_t id) const { return verdict.has_value() || over >= id; }
};

struct MemberRules {
  std::string task, host;
  std::string chief_task, chief_address;
  bool is_chief = false;
  bool may_leave = false;  // Elastic: a stop request concerns only this member.
  MemberTimeouts timeouts;
};

struct MemberChange {
  MemberState state;
  std::vector<MemberAction> actions;
};
MemberChange Apply(const MemberRules& rules, PausingTime now, MemberState state, MemberEvent event);

// Returns this process's status for a verdict.
absl::Status VerdictStatus(const MemberRules& rules, const Verdict& verdict);

}  // namespace membership
}  // namespace muster
