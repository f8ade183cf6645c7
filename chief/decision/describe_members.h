// These pure functions compare the positions of members in the sequence of collective operations,
// such as all-reduces. Error messages use the result to name the members that wait in a collective,
// and the members for which they wait.
#pragma once

#include <optional>
#include <string>

#include "chief/decision/decision.h"

namespace muster::chief {

// Returns a text such as "collective 413, all_reduce(float32 x 100, sum): in it chief 0 (host a,
// pid 12, for 61.2 s); not in it worker 1 (host c, pid 14, step 41, forward for 60.9 s)". Each of
// the two lists shows at most eight members and the number of omitted members. Returns "" if no
// member is in a collective.
std::string DescribeMembers(PausingTime now, const JobState& state);

// Returns whether `m` has entered or completed the collective that `waiter` is in. Returns nullopt
// if `waiter` is in no collective.
std::optional<bool> HasReached(const MemberInfo& waiter, const MemberInfo& m);

}  // namespace muster::chief
