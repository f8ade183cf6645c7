// Helper functions for decisions (decision.h) about synchronous members (decision_synchronous.cc,
// decision_elastic.cc, decision_spares.cc) and independent members (decision_independent.cc). A
// generation is a period in which a fixed set of members trains together.
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
// Returns the member that was lost first, nullopt if no member is lost. `suspected` is true if a
// collective has failed. If `suspected` is true, a member counts as lost after
// MembershipOptions::suspect without a heartbeat.
std::optional<MemberLoss> FirstLost(PausingTime now, const JobState& s, const MembershipOptions& o,
                                    bool suspected);
// Returns the timeout of the member's current phase, or zero for no timeout. A member that waits
// for a generation, has finished or has not joined has no timeout.
Duration PhaseLimit(const MemberInfo& m, const MembershipOptions& o);
// Returns a text such as "in phase 'data' for 12.0 s; timeouts.phase.data is 10 s".
std::string PhaseTooLong(Phase phase, Duration age, Duration limit);
// Returns the decision about the first failure that a member reported about itself, nullopt if
// there is no such failure.
std::optional<Decision> OwnFailure(const JobState& s);
// Returns true if this chief has formed no generation, and no member has joined with state from an
// earlier chief. A stop of the job then loses no state.
bool Fresh(const JobState& s);
// Returns true if some members have not joined this chief and may hold state from the time of an
// earlier chief. Returns false once this chief has formed a generation. Also returns false once
// MembershipOptions::survivors has passed since the start of this chief.
bool MayAwaitSurvivors(PausingTime now, const JobState& s, const MembershipOptions& o);

// Builds a list such as "worker 3, worker 4 and 17 more" for messages. The list shows at most
// kShown items, so that messages of large jobs stay short.
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

// Elastic jobs: returns true if the member was repeatedly lost in its first step, and `now` is
// before its backoff_until.
bool IsBackingOff(PausingTime now, const MemberInfo& m, const MembershipOptions& o);
// Returns why a generation may be formed at `now`, or "" if no generation may be formed. The
// generation may have fewer members than the cluster spec declares. If `with_backing_off` is false,
// members for which IsBackingOff is true do not count as ready.
std::string ReasonForFewer(PausingTime now, const JobState& s, const MembershipOptions& o,
                           bool with_backing_off);
// Elastic jobs: returns the decision to end a generation of fewer than FullSize members, if missing
// members have joined and can train in the next generation. Otherwise returns nullopt.
std::optional<Decision> DecideNewMember(PausingTime now, const JobState& s,
                                        const MembershipOptions& o);
// Elastic jobs and jobs with spares: decides about a member that was asked to stop. All stop if it
// is the chief, if no generation was formed yet, or if its generation would become too small.
// Otherwise it leaves alone. nullopt: no member was asked to stop, or the job ends anyway.
std::optional<Decision> DecideLeave(const JobState& s, const MembershipOptions& o);

// Returns the number of declared members minus MembershipOptions::spares.
int FullSize(const JobState& s, const MembershipOptions& o);
// Returns the number of ready members that are not in the current generation and were not asked to
// stop. Each of these members could replace a lost member at once.
int SparesReady(const JobState& s);
// Jobs with spares: returns why a generation of FullSize members may be formed at `now`, or "" if
// no such generation may be formed. Some declared members may be missing. `with_backing_off` is as
// in ReasonForFewer. Returns "" for a job without spares.
std::string ReasonWithSpares(PausingTime now, const JobState& s, const MembershipOptions& o,
                             bool with_backing_off);
// Reduces the list `ready` to at most FullSize members. Prefers the chief, then members of the last
// generation, then members with the newest state, then members that have waited longest. Before the
// first generation, the lowest index counts instead of the waiting time. Sorts `ready` by index.
// Has no effect in a job without spares.
void LeaveOutSpares(const JobState& s, const MembershipOptions& o, std::vector<int>* ready);

// Returns the decision to end the job, because some members did not join in time.
Decision DecideMissingMembers(PausingTime now, const JobState& s, const MembershipOptions& o);

}  // namespace muster::chief
