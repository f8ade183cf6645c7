// The positions of a generation's members in its collective operations. Verdicts use them to say
// which members wait, and for which others. Pure functions of (now, state).
#pragma once

#include <optional>
#include <string>

#include "chief/decision/decision.h"

namespace muster {

// Returns "collective 413, all_reduce(float32 x 100, sum): in it chief 0 (host a, pid 12, for 61.2
// s); not in it worker 1 (host c, pid 14, step 41, forward for 60.9 s)". At most eight of each are
// listed, and the rest counted. Returns "" if no member is in a collective.
std::string Standings(PausingTime now, const JobState& state);

// True if `m` is known to have entered, or passed, the operation that `waiter` is in. nullopt if
// one of the two has not reported its position.
std::optional<bool> HasComeTo(const MemberState& waiter, const MemberState& m);

}  // namespace muster
