// Disables abseil's deadlock detection, which is on in Debian's build of abseil. The detection
// looks up each nested lock in a graph of all locks of the process, including gRPC's. In a job with
// 1000 tasks, the detection takes a fifth of the CPU time of the chief's coordinator. Each task
// calls EndLockCycleSearch at its start, before it takes a lock. Tests do not call
// EndLockCycleSearch.
#pragma once

#include "absl/synchronization/mutex.h"

namespace muster {

inline void EndLockCycleSearch() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace muster
