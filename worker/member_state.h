// What a member knows, and how an event changes it: a pure function of (rules, now, state, event),
// so that tests move time by argument and see each transition alone. worker/member.cc feeds it, and
// does what it says. docs/control_plane.md shows it as a table, which a test checks against this.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/pausing_clock.h"
#include "worker/chief_silence.h"
#include "worker/member_events.h"

namespace muster {

struct MemberTimeouts {
  Duration join = std::chrono::minutes(10);       // to reach the chief for the first time
  Duration rejoin = std::chrono::minutes(10);     // to reach it again after it was lost
  Duration resume = std::chrono::seconds(1);      // to reach it again after a break
  Duration heartbeat = std::chrono::seconds(10);  // of the chief's silence: it is lost
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration explain = std::chrono::seconds(5);  // for a verdict after a collective failed
  // To tell the chief of an own failure, or, once asked to stop, for a lost chief to come back.
  Duration report = std::chrono::seconds(10);
  // From the end of a generation to the loop's return from it; longer where the loop is in a phase
  // that may take longer. A process that does not come back hangs, and is ended
  // (MemberOptions::on_stuck).
  Duration abort = std::chrono::minutes(1);
  Duration phase[kNumPhases] = {};  // zero: no limit of its own
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);
};

namespace membership {

// Where the process stands in the job. A generation is *over* once the coordinator, or the loss of
// the chief, ended it.
enum class Stage {
  kIdle,        // in no generation, and its loop does not ask for one
  kWaiting,     // the loop waits for a generation
  kForming,     // a generation is offered; the loop makes its links
  kFormed,      // the links stand, or do not; the loop waits for the start
  kRunning,     // the loop trains
  kExplaining,  // an error took the loop out; the coordinator has not ended the generation yet
  kFinished,    // the loop is through; it waits for the verdict
  kOver,        // the generation is over; the loop has to come back from it
  kEnding,      // there is a verdict; the loop has to come back
  kEnded,       // there is a verdict, and no loop to wait for
};
inline constexpr int kNumStages = 10;
inline constexpr std::string_view kStageNames[kNumStages] = {
    "Idle",       "Waiting",  "Forming", "Formed", "Running",
    "Explaining", "Finished", "Over",    "Ending", "Ended"};
inline std::string_view StageName(Stage stage) { return kStageNames[static_cast<int>(stage)]; }

// The session with the coordinator.
enum class SessionStage {
  kNone,        // never opened
  kConnecting,  // opened; not welcome yet
  kUp,
  kClosing,  // given up from this side; what still comes over it does not count, but a verdict
  kBroken,   // closed; the next one is due at `next_attempt`
};
inline constexpr int kNumSessionStages = 5;
inline constexpr std::string_view kSessionStageNames[kNumSessionStages] = {
    "None", "Connecting", "Up", "Closing", "Broken"};
inline std::string_view StageName(SessionStage stage) {
  return kSessionStageNames[static_cast<int>(stage)];
}

struct SessionState {
  SessionStage stage = SessionStage::kNone;
  std::optional<PausingTime> broken_since;  // not welcome since
  PausingTime last_heard, last_sent, next_attempt;
  std::string trouble = "no answer yet";  // why the chief is not reached
};

struct GenerationError {
  uint64_t generation = 0;
  std::string message;
  ExitCode code = ExitCode::kDone;
};

// What the process says of itself with each report.
struct MemberReport {
  Phase phase = Phase::kStarting;
  PausingTime phase_since;
  int64_t step = 0, last_step = 0;
  uint64_t formed = 0;  // the generation whose links it made last
  std::optional<GenerationError> formation_error, collective_error;
  ExitCode outcome = ExitCode::kDone;  // of the loop, once it has finished
  std::string outcome_message;
  bool stop_requested = false;   // all stop at an agreed step
  bool leave_requested = false;  // this process alone
};

struct MemberState {
  explicit MemberState(PausingTime now = {}, Duration heartbeat = std::chrono::seconds(10))
      : silence(heartbeat) {
    report.phase_since = session.next_attempt = now;
  }

  Stage stage = Stage::kIdle;
  SessionState session;
  MemberReport report;
  bool changed = false;  // the next Tick is due at once: there is something to send or to do

  std::optional<PausingTime> looking_since;  // for the chief; absent: not asked to
  std::optional<PausingTime> stop_since;     // asked to stop while the chief is away
  PausingTime next_line;                     // in the log, while the chief is away
  ChiefSilence silence;
  int64_t chief_pid = 0;
  std::optional<Welcome> welcome;

  std::shared_ptr<const Roster> roster;  // of `generation`
  uint64_t generation = 0;               // the newest that was offered; 0: none yet
  uint64_t over = 0;                     // the newest that is over
  std::string why_over;
  bool start_given = false;               // for `generation`, whose links may not stand yet
  std::optional<PausingTime> over_since;  // that the loop has to come back
  bool stuck = false;                     // it was said that it does not
  std::optional<Verdict> verdict;

  bool InGeneration() const { return generation > over; }
  // Whether whoever is in that generation has to leave it.
  bool IsOver(uint64_t id) const { return verdict.has_value() || over >= id; }
};

struct MemberRules {
  std::string task, host;
  std::string chief_task, chief_address;
  bool is_chief = false;
  bool may_leave = false;  // elastic: a request to stop is one of this member alone
  MemberTimeouts timeouts;
};

struct MemberChange {
  MemberState state;
  std::vector<MemberAction> actions;
};
MemberChange Apply(const MemberRules& rules, PausingTime now, MemberState state, MemberEvent event);

// This process's status once there is a verdict.
absl::Status VerdictStatus(const MemberRules& rules, const Verdict& verdict);

}  // namespace membership
}  // namespace muster
