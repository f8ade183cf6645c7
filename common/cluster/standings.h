// Where the members of a generation stand in its collective operations: the half of a verdict that
// says who waits, and for whom. Pure functions of (now, state).
#pragma once

#include <optional>
#include <string>

#include "common/cluster/decision.h"

namespace muster {

// "collective 413, all_reduce(float32 x 100, sum): in it chief 0 (host a, pid 12, for 61.2 s); not
// in it worker 1 (host c, pid 14, step 41, forward for 60.9 s)". At most eight of each are listed,
// the rest counted. "" where nobody is in any.
std::string Standings(PausingTime now, const JobState& state);

// Whether `m` is known to have come to the operation that `waiter` is in, or to have passed it;
// nothing where neither tells.
std::optional<bool> HasComeTo(const MemberState& waiter, const MemberState& m);

}  // namespace muster
