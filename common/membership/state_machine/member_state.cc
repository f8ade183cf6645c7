// Handles the events of the loop and of the coordinator. member_watch.cc handles those of time.
#include "common/membership/state_machine/member_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/membership/state_machine/member_transition.h"

namespace muster::membership {

MemberChange Apply(const MemberRules& rules, PausingTime now, MemberState state,
                   MemberEvent event) {
  Transition transition(rules, now, std::move(state));
  std::visit([&transition](auto&& e) { transition.On(std::forward<decltype(e)>(e)); },
             std::move(event));
  return std::move(transition).Take();
}

absl::Status VerdictStatus(const MemberRules& rules, const Verdict& verdict) {
  return StatusOf(verdict, rules.task, rules.is_chief);
}

// ---- the loop's calls

void Transition::On(const JoinRequested&) { StartLooking(); }

void Transition::On(const GenerationRequested& event) {
  StartLooking();
  state_.report.last_step = event.last_step;
  if (state_.verdict) {
    state_.stage = Stage::kEnded;
    return;
  }
  // The generation may have been offered, and may even be over, before the loop asked.
  const bool offered = state_.InGeneration() && state_.generation != state_.report.formed;
  state_.stage = offered ? Stage::kForming : Stage::kWaiting;
  SetPhase(offered ? Phase::kForming : Phase::kStarting, state_.report.step);
  state_.changed = true;
}

void Transition::On(LinksEstablished event) {
  if (state_.stage != Stage::kForming || event.generation != state_.generation) return;
  state_.report.formed = event.generation;
  state_.stage = Stage::kFormed;
  state_.changed = true;
  Do(Note{.kind = FlightKind::kFormed, .detail = std::move(event.description)});
  StartIfFormed();  // The only member of a generation starts at once.
}

void Transition::On(LinksFailed event) {
  if (state_.stage != Stage::kForming || event.generation != state_.generation) return;
  Do(Note{.kind = FlightKind::kNotFormed, .detail = event.message});
  state_.report.formation_error = GenerationError{
      .generation = event.generation, .message = std::move(event.message), .code = event.code};
  state_.stage = Stage::kFormed;
  state_.changed = true;
}

void Transition::On(const PhaseEntered& event) {
  const Phase before = state_.report.phase;
  const bool in_first_step = InFirstStep();
  SetPhase(event.phase, event.step);
  // Also for a phase that is entered again, because the loop makes progress.
  state_.report.phase_since = now_;
  // Reports at once that training has begun, so that the verdict includes it if the process is lost
  // before its next heartbeat. Also reports the end of the first step at once, because the other
  // members of an elastic job do not wait for a member that is lost in its first step.
  const bool begins = before == Phase::kStarting || before == Phase::kForming;
  if (begins || (in_first_step && !InFirstStep())) state_.changed = true;
}

void Transition::On(CollectiveFailed event) {
  const uint64_t generation = state_.report.formed;
  if (generation != 0 && !state_.IsOver(generation)) {
    state_.report.collective_error =
        GenerationError{.generation = generation, .message = std::move(event.message)};
    state_.changed = true;
  }
  LoopLeft();
}

void Transition::On(const LoopFailed& event) {
  LoopLeft();
  if (!state_.verdict) Do(Note{.kind = FlightKind::kFailure, .detail = event.message});
}

void Transition::On(FailureNotReported event) {
  if (state_.verdict) return;
  Do(Log{.warning = true, .line = "the chief does not know of this failure: " + event.why});
  AddRecord(std::move(event.failure), /*last=*/true);
}

void Transition::On(LoopFinished event) {
  state_.report.last_step = event.last_step;
  state_.report.outcome = event.outcome;
  state_.report.outcome_message = std::move(event.message);
  LoopLeft();
  if (!state_.IsOver(std::max<uint64_t>(1, state_.report.formed))) state_.stage = Stage::kFinished;
  SetPhase(Phase::kEnding, state_.report.step);
  state_.changed = true;
}

void Transition::On(const LoopReturned&) {
  if (state_.IsOver(state_.report.formed)) LoopLeft();
}

void Transition::On(const StopReceived&) {
  (rules_.may_leave ? state_.report.leave_requested : state_.report.stop_requested) = true;
  Do(Note{.kind = FlightKind::kStopRequested, .detail = "this process was asked to"});
  state_.changed = true;
}

// ---- messages of the coordinator

void Transition::On(Welcomed event) {
  if (!NoteContact()) return;
  state_.session.stage = SessionStage::kUp;
  state_.session.broken_since.reset();
  state_.welcome = std::move(event.welcome);
  state_.chief_pid = event.chief_pid;
  state_.changed = true;
  Do(Note{.kind = FlightKind::kChiefFound});
  Do(ChiefReached{});
}

void Transition::On(Refused event) {
  NoteContact();
  EndJob(std::move(event.verdict), /*given_up=*/state_.generation != 0);
}

void Transition::On(JobEnded event) {
  NoteContact();
  EndJob(std::move(event.verdict));
}

void Transition::On(const Pulse& event) {
  if (!NoteContact() || !event.stop_requested || state_.report.stop_requested) return;
  state_.report.stop_requested = true;
  Do(Note{.kind = FlightKind::kStopRequested, .detail = "all stop at an agreed step"});
}

void Transition::On(RosterReceived event) {
  // In the chief's process, the coordinator has logged the line.
  if (NoteContact() && !rules_.is_chief) Do(Log{.line = std::move(event.line)});
}

void Transition::On(GenerationOffered event) {
  const uint64_t id = event.roster->generation;
  if (!NoteContact() || state_.verdict) return;
  if (state_.InGeneration() && id == state_.generation) return;  // Repeated over a resumed session.
  if (id <= state_.generation) {
    Do(Log{.warning = true,
           .line = fmt::format("ignored generation {} from the chief: this process has seen {}", id,
                               state_.generation)});
    return;
  }
  if (state_.InGeneration()) EndGeneration(state_.generation, "the chief formed another one");
  state_.roster = std::move(event.roster);
  state_.generation = id;
  state_.start_given = false;
  state_.changed = true;
  Do(NoteGeneration{});
  if (state_.stage == Stage::kWaiting) state_.stage = Stage::kForming;
  // In the other stages the loop is still busy with the previous generation, and finds this one
  // when it asks.
  if (state_.stage != Stage::kOver) SetPhase(Phase::kForming, state_.report.step);
}

void Transition::On(const GenerationStarted& event) {
  if (!NoteContact() || !state_.InGeneration() || event.generation != state_.generation) return;
  if (!std::exchange(state_.start_given, true)) Do(Note{.kind = FlightKind::kStarted});
  StartIfFormed();
}

void Transition::StartIfFormed() {
  if (!state_.start_given || state_.stage != Stage::kFormed ||
      state_.report.formed != state_.generation)
    return;
  state_.stage = Stage::kRunning;
  SetPhase(Phase::kStarting, state_.report.step);
}

void Transition::On(GenerationAborted event) {
  if (!NoteContact() || event.generation <= state_.over) return;
  Do(Note{.kind = FlightKind::kAborted, .detail = event.reason});
  EndGeneration(event.generation, std::move(event.reason));
}

// ---- the session itself

void Transition::On(SessionClosed event) {
  // The first attempt after a break comes at once.
  const bool broke = state_.session.stage == SessionStage::kUp;
  SessionDown(SessionStage::kBroken);
  state_.session.next_attempt = broke ? now_ : now_ + event.retry;
  if (!state_.session.broken_since) state_.session.broken_since = now_;
  if (event.no_chief)
    return EndJob(
        OwnVerdict(ExitCode::kConfiguration,
                   fmt::format("{} is not a Muster chief: {}", rules_.chief_address, event.why)));
  state_.session.last_error = std::move(event.why);
}

void Transition::On(const SessionCut&) {
  if (HasSession()) Do(CancelSession{});
}

void Transition::On(const RecordsDelivered&) { state_.changed = true; }

}  // namespace muster::membership
