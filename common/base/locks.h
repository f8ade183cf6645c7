// Disables abseil's detection of lock cycles. Call it in main of a role before any lock is taken.
// Debian's abseil is built with debugging enabled. It looks up each nested lock in a graph of all
// locks of the process, including gRPC's. That takes a fifth of the CPU of a coordinator of 1000
// members. Tests keep the detection on.
#pragma once

#include "absl/synchronization/mutex.h"

namespace muster {

inline void EndLockCycleSearch() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace muster
