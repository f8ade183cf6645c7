// What the decisions for members that train together (decision.cc) and for independent ones
// (decision_independent.cc) are made of.
#pragma once

#include <optional>
#include <string>

#include "common/cluster/decision.h"

namespace muster {

Decision Make(Action action, std::string reason, int member = -1);
Decision Wait(std::string reason = "");
Decision End(int member, Verdict verdict);
// A verdict over that member.
Verdict About(const MemberState& m, ExitCode code, std::string message);

struct LostMember {
  int member = -1;
  std::string why;
};
// The one that was lost first. `suspected`: others could not reach somebody.
std::optional<LostMember> FirstLost(MonotonicTime now, const JobState& s, const DecisionOptions& o,
                                    bool suspected);
// The first own failure that anybody reported.
std::optional<Decision> OwnFailure(const JobState& s);
// There is no state yet that would be lost.
bool Fresh(const JobState& s);
// The end of a job whose members did not come in time.
Decision NotAllCame(MonotonicTime now, const JobState& s, const DecisionOptions& o);

// DecisionOptions::independent, before the end.
Decision DecideIndependent(MonotonicTime now, const JobState& s, const DecisionOptions& o);

}  // namespace muster
