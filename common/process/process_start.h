// Identifies a process uniquely. A pid alone is not unique: processes on two hosts may have the
// same pid, and the kernel reuses pids.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns an identifier of the boot of this machine and of the pid namespace. Processes with equal
// results see each other under the same pids.
std::string PlaceOfThisProcess();
// Returns the start time of a process in clock ticks since boot. Returns "" if the process does not
// exist or is a zombie. The place, the pid and the start time together identify a process.
std::string StartOf(int64_t pid);

}  // namespace muster
