// Disables abseil's deadlock detection, which is on in Debian's build of abseil. The detection
// looks up each nested lock in a graph of all locks of the process, including gRPC's. With 1000
// members, it takes a fifth of the coordinator's CPU time. A role's main calls EndLockCycleSearch
// before any lock is taken. Tests keep the detection on.
#pragma once

#include "absl/synchronization/mutex.h"

namespace muster {

inline void EndLockCycleSearch() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace muster
