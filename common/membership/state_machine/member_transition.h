// The implementation of Apply (member_state.h), in three classes. Transition handles one event. Its
// base class TickTransition handles the event Tick: time has passed. Their base class
// TransitionSteps has the steps that several events share. member_state.cc implements Transition,
// member_watch.cc implements TickTransition, and member_transition.cc implements TransitionSteps.
//
// member_events.h defines the terms.
#pragma once

#include <string>
#include <utility>

#include "common/membership/state_machine/member_state.h"

namespace muster::membership {

class TransitionSteps {
 public:
  TransitionSteps(const MemberRules& rules, PausingTime now, MemberState state)
      : rules_(rules), now_(now), state_(std::move(state)) {}
  MemberChange Take() && { return {std::move(state_), std::move(actions_)}; }

 protected:
  // Adds an action to the result.
  template <typename Action>
  void Do(Action action) {
    actions_.emplace_back(std::move(action));
  }

  // Starts the first search for the chief. Later calls have no effect.
  void StartLooking();
  void SetPhase(Phase phase, int64_t step);
  // Called when the loop has left its generation. The generation itself may still continue.
  void LoopLeft();
  // Marks `generation` and all generations before it as over.
  void EndGeneration(uint64_t generation, std::string why);
  void EndJob(Verdict verdict, bool given_up = false);
  // Adds the action SubmitRecord.
  void AddRecord(std::string reason, bool last = false);
  void CancelTheSession();
  // Sets the stage of the session to kClosing or kBroken.
  void SessionDown(SessionStage stage);
  // Called for each message of the chief. Returns false if this process has closed the session. The
  // caller must then ignore the message, except a verdict.
  bool NoteContact();

  bool HasSession() const {
    return state_.session.stage == SessionStage::kConnecting ||
           state_.session.stage == SessionStage::kUp;
  }
  // Returns a verdict that names this process. Used if the coordinator cannot be reached.
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
  // Returns true until the loop completes the first step of the newest offered generation.
  bool InFirstStep() const {
    return state_.roster != nullptr && state_.report.step - 1 <= state_.roster->newest_step;
  }
};

}  // namespace muster::membership
