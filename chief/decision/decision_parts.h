// Functions shared by the decisions for synchronous members (decision_synchronous.cc,
// decision_elastic.cc) and independent ones (decision_independent.cc).
#pragma once

#include <optional>
#include <string>

#include "chief/decision/decision.h"

namespace muster {

Decision Make(Action action, std::string reason, int member = -1);
Decision Wait(std::string reason = "");
Decision End(int member, Verdict verdict);
// Returns a verdict that names the member as the cause.
Verdict About(const MemberState& m, ExitCode code, std::string message);

struct MemberLoss {
  int member = -1;
  std::string why;
};
// Returns the member that was lost first. `suspected`: other members could not reach some member.
std::optional<MemberLoss> FirstLost(PausingTime now, const JobState& s, const MembershipOptions& o,
                                    bool suspected);
// The timeout of the member's current phase. Zero: no timeout, because it waits for others, has
// finished, has not joined, or the job sets none.
Duration PhaseLimit(const MemberState& m, const MembershipOptions& o);
// Returns "in phase 'data' for 12.0 s; timeouts.phase.data is 10 s".
std::string PhaseTooLong(Phase phase, Duration age, Duration limit);
// Returns a decision for the first failure that any member reported of itself.
std::optional<Decision> OwnFailure(const JobState& s);
// True if no state exists yet that could be lost.
bool Fresh(const JobState& s);
// True if members that have not joined yet may hold state of an earlier chief.
bool AwaitsSurvivors(PausingTime now, const JobState& s, const MembershipOptions& o);

// A list for messages: "worker 3, worker 4 and 17 others". It shows a limited number of items,
// because it may be built for each of a thousand messages.
class List {
 public:
  bool full() const { return count_ >= kShown; }
  bool empty() const { return count_ == 0; }
  void Add(const std::string& item);
  void AddTask(const MemberState& m) { Add(full() ? "" : m.declared.task.Spoken()); }
  std::string text() const;

 private:
  static constexpr int kShown = 16;
  int count_ = 0;
  std::string text_;
};

// Elastic: true if the member was repeatedly lost in its first step and is not admitted yet.
bool Held(PausingTime now, const MemberState& m, const MembershipOptions& o);
// Returns why a generation of fewer members than declared may be formed now, or "" if it may not.
// `with_held`: count also the members that are held back.
std::string FewerWillDo(PausingTime now, const JobState& s, const MembershipOptions& o,
                        bool with_held);
// Elastic: ends a generation of fewer members than declared to admit those that have come since.
std::optional<Decision> Newcomer(PausingTime now, const JobState& s, const MembershipOptions& o);
// Elastic: a member that was asked to stop leaves if enough others remain. Otherwise all stop.
std::optional<Decision> Leaver(const JobState& s, const MembershipOptions& o);

// Ends a job whose members did not come in time.
Decision NotAllCame(PausingTime now, const JobState& s, const MembershipOptions& o);

}  // namespace muster
