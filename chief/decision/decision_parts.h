// Helper functions for the decisions about synchronous members (decision_synchronous.cc,
// decision_elastic.cc) and about independent members (decision_independent.cc).
#pragma once

#include <optional>
#include <string>

#include "chief/decision/decision.h"

namespace muster::chief {

Decision Make(Action action, std::string reason, int member = -1);
Decision Wait(std::string reason = "");
Decision End(int member, Verdict verdict);
// Returns a verdict that names the member as the cause.
Verdict About(const MemberInfo& m, ExitCode code, std::string message);

struct MemberLoss {
  int member = -1;
  std::string why;
};
// Returns the member that was lost first. `suspected` is true if a collective has failed. A member
// then counts as lost after MembershipOptions::suspect without a heartbeat.
std::optional<MemberLoss> FirstLost(PausingTime now, const JobState& s, const MembershipOptions& o,
                                    bool suspected);
// Returns the timeout of the member's current phase. Returns zero, for no timeout, if the member
// waits for others, has finished or has not joined, or if the job sets none.
Duration PhaseLimit(const MemberInfo& m, const MembershipOptions& o);
// Returns "in phase 'data' for 12.0 s; timeouts.phase.data is 10 s".
std::string PhaseTooLong(Phase phase, Duration age, Duration limit);
// Returns the decision about the first failure that a member reported about itself, nullopt if
// there is none.
std::optional<Decision> OwnFailure(const JobState& s);
// Returns true if no member holds state that could be lost.
bool Fresh(const JobState& s);
// Returns true if members that have not joined yet may hold state from the time of an earlier
// chief.
bool MayAwaitSurvivors(PausingTime now, const JobState& s, const MembershipOptions& o);

// Builds a list for messages: "worker 3, worker 4 and 17 others". The list shows at most kShown
// items, because a large job may build it in each of a thousand messages.
class List {
 public:
  bool full() const { return count_ >= kShown; }
  bool empty() const { return count_ == 0; }
  void Add(const std::string& item);
  void AddTask(const MemberInfo& m) { Add(full() ? "" : m.declared.task.DisplayName()); }
  std::string text() const;

 private:
  static constexpr int kShown = 16;
  int count_ = 0;
  std::string text_;
};

// Elastic jobs: returns true if the member was repeatedly lost in its first step and may not be
// admitted yet.
bool IsBackingOff(PausingTime now, const MemberInfo& m, const MembershipOptions& o);
// Returns why a generation of fewer members than declared may be formed now, or "" if it may not.
// If `with_backing_off`, also counts the members for which IsBackingOff is true.
std::string ReasonForFewer(PausingTime now, const JobState& s, const MembershipOptions& o,
                           bool with_backing_off);
// Elastic jobs: returns the decision to end a generation of fewer members than declared, so that
// the members that have come since can join.
std::optional<Decision> DecideNewMember(PausingTime now, const JobState& s,
                                        const MembershipOptions& o);
// Elastic jobs: returns the decision about a member that was asked to stop. The member leaves if
// enough others remain. Otherwise all members stop.
std::optional<Decision> DecideLeave(const JobState& s, const MembershipOptions& o);

// Jobs with spares: the number of members that train while none is missing. Equal to the number of
// declared members if the job has no spares.
int FullSize(const JobState& s, const MembershipOptions& o);
// Returns the number of members that could replace a lost one at once.
int SparesReady(const JobState& s);
// Returns why a generation of FullSize members may be formed now although not all members are
// ready, or "" if it may not or the job has no spares. `with_backing_off` is that of
// ReasonForFewer.
std::string ReasonWithSpares(PausingTime now, const JobState& s, const MembershipOptions& o,
                             bool with_backing_off);
// Reduces the ready members to FullSize. Prefers the chief, then members of the last generation,
// then those with the newest state, then those that wait longest; at the start of a job, those with
// the lowest index. The result is sorted by index.
void LeaveOutSpares(const JobState& s, const MembershipOptions& o, std::vector<int>* ready);

// Returns the decision to end the job, because some members did not join in time.
Decision DecideMissingMembers(PausingTime now, const JobState& s, const MembershipOptions& o);

}  // namespace muster::chief
