// The number of restarts that a supervisor (muster launch) passes to a process.
#pragma once

namespace muster {

inline constexpr char kRestartsVariable[] = "MUSTER_RESTARTS";

// Returns how often the supervisor has restarted this task, or 0 if kRestartsVariable is not set.
// Called from main.
int Restarts();

}  // namespace muster
