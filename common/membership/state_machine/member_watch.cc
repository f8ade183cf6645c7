// Handles Tick events, the effects of time on a member's state.
#include <fmt/format.h>

#include <algorithm>

#include "common/membership/state_machine/member_transition.h"

namespace muster::membership {

void TickTransition::On(const Tick& event) {
  if (!state_.verdict) WatchChief();
  if (!state_.verdict && !event.leaving && !event.muted) Connect();
  WatchLoop();
  if (!event.muted) Report();
  if (state_.verdict) return;
  if (const auto silence = state_.silence.TakeChange(now_))
    Do(NotifySilence{.chief_pid = state_.chief_pid, .silence = *silence});
}

// Each member detects the end of the chief itself. It must not wait for a verdict then.
void TickTransition::WatchChief() {
  const SessionState& session = state_.session;
  const bool silent = HasSession() && now_ - session.last_heard >= rules_.timeouts.heartbeat;
  if (state_.InGeneration() || state_.stage == Stage::kFinished) {
    if (silent)
      return LoseChief(fmt::format("no answer for {:.1f} s", Seconds(now_ - session.last_heard)));
    if (session.broken_since && now_ - *session.broken_since >= rules_.timeouts.resume)
      LoseChief(fmt::format("{}, tried again for {:.1f} s", session.last_error,
                            Seconds(now_ - *session.broken_since)));
    return;
  }
  if (silent) {
    // Nothing is lost yet, so the member looks for the chief again.
    state_.session.last_error = "no answer";
    CancelTheSession();
  }
  if (session.stage != SessionStage::kUp && state_.looking_since) WaitForChief();
}

void TickTransition::WaitForChief() {
  const bool again = state_.generation != 0;
  const bool stops = state_.report.stop_requested || state_.report.leave_requested;
  // Give up only after an attempt to reach the chief. A running chief must receive the stop
  // request, because it concerns all members.
  if (stops && state_.session.broken_since) {
    if (!state_.stop_since) state_.stop_since = now_;
    // If the chief was stopped too, it does not return. If another chief replaces it, that chief
    // needs the state of this process.
    const PausingTime since = std::max(*state_.stop_since, *state_.looking_since);
    if (!again || now_ - since >= rules_.timeouts.report)
      return EndJob({.code = ExitCode::kPreempted,
                     .phase = state_.report.phase,
                     .message = again ? "stopped as asked; the chief did not return to save the "
                                        "state"
                                      : "stopped before the chief was reached, as asked"});
  }
  const Duration patience = again ? rules_.timeouts.rejoin : rules_.timeouts.join;
  if (now_ - *state_.looking_since >= patience)
    return EndJob(OwnVerdict(
        ExitCode::kRetryable,
        fmt::format("could not reach the chief {} ({}) {}for {:g} s (timeouts.{}): {}",
                    rules_.chief_task, rules_.chief_address, again ? "again " : "",
                    Seconds(patience), again ? "rejoin" : "join", state_.session.last_error)));
  if (now_ < state_.next_line) return;
  state_.next_line = now_ + std::chrono::seconds(10);
  Do(Log{.line = fmt::format("this task waits for the chief {} ({}): {}", rules_.chief_task,
                             rules_.chief_address, state_.session.last_error)});
}

// The chief's successor finds this process with the state that it holds.
void TickTransition::LoseChief(const std::string& why) {
  std::string story =
      fmt::format("lost the chief {} ({}): {}", rules_.chief_task, rules_.chief_address, why);
  Do(Log{.warning = true,
         .line = fmt::format("{}; this task waits up to {:g} s for it to return (timeouts.rejoin)",
                             story, Seconds(rules_.timeouts.rejoin))});
  Do(Note{.kind = FlightKind::kChiefLost, .detail = why});
  EndGeneration(state_.generation, std::move(story));
  // The loop may have finished without a generation.
  if (state_.stage == Stage::kFinished) state_.stage = Stage::kIdle;
  CancelTheSession();
  state_.looking_since = now_;
  state_.next_line = now_ + std::chrono::seconds(10);
}

void TickTransition::Connect() {
  SessionState& session = state_.session;
  const bool closed =
      session.stage == SessionStage::kNone || session.stage == SessionStage::kBroken;
  if (!closed || !state_.looking_since || now_ < session.next_attempt) return;
  session.stage = SessionStage::kConnecting;
  session.last_heard = now_;
  Do(OpenSession{});
}

void TickTransition::WatchLoop() {
  if ((state_.stage != Stage::kOver && state_.stage != Stage::kEnding) || state_.stuck) return;
  const Phase phase = state_.report.phase;
  const Duration own = rules_.timeouts.phase[static_cast<int>(phase)];
  // A save that has begun is completed, however long its phase may take.
  if (phase == Phase::kSave && own == Duration::zero()) return;
  // A phase with a longer limit of its own, such as a save to slow storage, keeps that limit after
  // the end of the generation. kReduce does not, because the abort wakes a loop that waits for
  // peers.
  const bool longer = phase != Phase::kReduce && own > rules_.timeouts.abort;
  const Duration limit = longer ? own : rules_.timeouts.abort;
  if (now_ - std::max(*state_.over_since, state_.report.phase_since) < limit) return;
  state_.stuck = true;
  const std::string why = fmt::format(
      "the training loop did not return within {:g} s of the end of its generation "
      "(timeouts.{}): {}",
      Seconds(limit), longer ? fmt::format("phase.{}", PhaseName(phase)) : "abort",
      state_.why_over);
  AddRecord(why, /*last=*/true);
  Do(NotifyStuck{why});
}

void TickTransition::Report() {
  SessionState& session = state_.session;
  // If the session is down, the first report after the next welcome sends the change.
  const bool due = state_.changed || now_ - session.last_sent >= rules_.timeouts.heartbeat_interval;
  state_.changed = false;
  if (session.stage != SessionStage::kUp || !due) return;
  session.last_sent = now_;
  Do(SendReport{});
}

}  // namespace muster::membership
