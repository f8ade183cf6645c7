// The implementation of Apply (common/membership/member_state.h), in three classes. TransitionSteps
// has the steps that several events share (common/membership/member_transition.cc). TickTransition
// has the effects of time (common/membership/member_watch.cc). Transition has the events of the
// loop and of the coordinator (common/membership/member_state.cc).
#pragma once

#include <string>
#include <utility>

#include "common/membership/member_state.h"

namespace muster::membership {

class TransitionSteps {
 public:
  TransitionSteps(const MemberRules& rules, PausingTime now, MemberState state)
      : rules_(rules), now_(now), state_(std::move(state)) {}
  MemberChange Take() && { return {std::move(state_), std::move(actions_)}; }

 protected:
  template <typename Action>
  void Do(Action action) {
    actions_.emplace_back(std::move(action));
  }

  void StartLooking();
  void SetPhase(Phase phase, int64_t step);
  // Records that the loop has left its generation, whether or not the generation is over.
  void LoopLeft();
  // Ends all generations up to this one.
  void EndGeneration(uint64_t generation, std::string why);
  void EndJob(Verdict verdict, bool given_up = false);
  void AddRecord(std::string reason, bool last = false);
  void CancelTheSession();
  // Records that the session is closed or is being closed.
  void SessionDown(SessionStage stage);
  // Records that a message of the chief has arrived. Returns false if this process has given the
  // session up.
  bool NoteContact();

  bool HasSession() const {
    return state_.session.stage == SessionStage::kConnecting ||
           state_.session.stage == SessionStage::kUp;
  }
  // Returns a verdict that this process makes itself, for the case that the coordinator cannot give
  // one.
  Verdict OwnVerdict(ExitCode code, std::string message) const {
    return {.code = code,
            .task = rules_.task,
            .host = rules_.host,
            .phase = state_.report.phase,
            .message = std::move(message)};
  }

  const MemberRules& rules_;
  const PausingTime now_;
  MemberState state_;
  std::vector<MemberAction> actions_;
};

class TickTransition : public TransitionSteps {
 public:
  using TransitionSteps::TransitionSteps;
  void On(const Tick& event);

 private:
  void WatchChief();
  void WaitForChief();
  void LoseChief(const std::string& why);
  void Connect();
  void WatchLoop();
  void Report();
};

class Transition final : public TickTransition {
 public:
  using TickTransition::On;
  using TickTransition::TickTransition;

  void On(const JoinRequested&);
  void On(const GenerationRequested& event);
  void On(LinksEstablished event);
  void On(LinksFailed event);
  void On(const PhaseEntered& event);
  void On(CollectiveFailed event);
  void On(const LoopFailed& event);
  void On(FailureNotReported event);
  void On(LoopFinished event);
  void On(const LoopReturned&);
  void On(const StopReceived&);
  void On(Welcomed event);
  void On(Refused event);
  void On(JobEnded event);
  void On(const Pulse& event);
  void On(RosterReceived event);
  void On(GenerationOffered event);
  void On(const GenerationStarted& event);
  void On(GenerationAborted event);
  void On(SessionClosed event);
  void On(const SessionCut&);
  void On(const RecordsDelivered&);

 private:
  void StartIfFormed();
};

}  // namespace muster::membership
