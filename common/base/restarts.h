// How whoever supervises a process (muster launch) tells it that it takes a lost one's place.
#pragma once

namespace muster {

inline constexpr char kRestartsVariable[] = "MUSTER_RESTARTS";

// How often this task was started before, from the environment; 0 where nobody tells. Call from
// main.
int Restarts();

}  // namespace muster
