#include "common/membership/state_machine/member_transition.h"

#include <algorithm>

namespace muster::membership {

void TransitionSteps::StartLooking() {
  if (state_.looking_since) return;
  state_.looking_since = now_;
  state_.next_line = now_ + std::chrono::seconds(10);
  state_.changed = true;
}

void TransitionSteps::SetPhase(Phase phase, int64_t step) {
  MemberReport& report = state_.report;
  if (report.phase == phase && report.step == step) return;
  report.phase = phase;
  report.step = step;
  report.phase_since = now_;
  Do(NotePhase{});
}

void TransitionSteps::LoopLeft() {
  if (state_.stage == Stage::kRunning) state_.stage = Stage::kExplaining;
  if (state_.stage == Stage::kOver) state_.stage = Stage::kIdle;
  if (state_.stage == Stage::kEnding) state_.stage = Stage::kEnded;
}

bool TransitionSteps::NoteContact() {
  if (!HasSession()) return false;
  state_.session.last_heard = now_;
  state_.silence.OnContact(now_);
  return true;
}

void TransitionSteps::EndGeneration(uint64_t generation, std::string why) {
  const bool leaves = state_.InGeneration() && generation >= state_.generation;
  state_.over = std::max(state_.over, generation);
  state_.why_over = std::move(why);
  state_.changed = true;
  if (!leaves) return;
  Do(AbortCommunicators{Superseded(state_.why_over)});
  if (!state_.verdict) AddRecord(state_.why_over);
  switch (state_.stage) {
    case Stage::kRunning:
      state_.stage = Stage::kOver;
      state_.over_since = now_;
      return;
    case Stage::kForming:
    case Stage::kFormed:
    case Stage::kExplaining:
    case Stage::kFinished:
      state_.stage = Stage::kIdle;
      return;
    case Stage::kIdle:     // The loop has not asked yet.
    case Stage::kWaiting:  // The loop does not wait for this generation.
    case Stage::kOver:     // The loop has not returned from the previous one.
    case Stage::kEnding:
    case Stage::kEnded:
      return;
  }
}

// Has no effect before the first generation.
void TransitionSteps::AddRecord(std::string reason, bool last) {
  if (state_.generation == 0) return;
  Do(SubmitRecord{.roster = state_.roster, .reason = std::move(reason), .last = last});
}

void TransitionSteps::EndJob(Verdict verdict, bool given_up) {
  if (state_.verdict) return;
  const bool done = verdict.code == ExitCode::kDone;
  const std::string story = done ? "" : Describe(verdict);
  Do(Note{.kind = FlightKind::kVerdict, .detail = story});
  if (!done) Do(AbortCommunicators{VerdictStatus(rules_, verdict)});
  if (!done && verdict.code != ExitCode::kPreempted) AddRecord(story, /*last=*/true);
  Do(NotifyVerdict{.verdict = verdict, .given_up = given_up});
  state_.verdict = std::move(verdict);
  state_.changed = true;
  if (state_.stage == Stage::kRunning) state_.over_since = now_;
  const bool loop_is_out = state_.stage == Stage::kRunning || state_.stage == Stage::kOver;
  state_.stage = loop_is_out ? Stage::kEnding : Stage::kEnded;
}

void TransitionSteps::SessionDown(SessionStage stage) {
  // From now on the chief must be reached within timeouts.join or timeouts.rejoin.
  if (state_.session.stage == SessionStage::kUp && !state_.InGeneration() && state_.looking_since)
    state_.looking_since = now_;
  state_.session.stage = stage;
}

void TransitionSteps::CancelTheSession() {
  if (!HasSession()) return;
  SessionDown(SessionStage::kClosing);
  Do(CancelSession{});
}

}  // namespace muster::membership
