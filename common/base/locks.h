// For main of a role, before it takes a lock: abseil's search for lock cycles ends. Debian builds
// abseil as for debugging, which looks up each lock that is taken under another one in a graph of
// the whole process, gRPC's locks included: a fifth of the CPU of a coordinator of 1000 members.
// Tests go on searching.
#pragma once

#include "absl/synchronization/mutex.h"

namespace muster {

inline void EndLockCycleSearch() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace muster
