// The number of restarts that a supervisor (muster launch) passes to a process.
#pragma once

namespace muster {

inline constexpr char kRestartsVariable[] = "MUSTER_RESTARTS";

// Returns how often this task was started before, from the environment, or 0 if it is not set. Call
// it from main.
int Restarts();

}  // namespace muster
