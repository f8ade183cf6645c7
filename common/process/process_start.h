// Identifies processes across hosts and reuse of pids.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns an identifier of the scope in which a pid is unique: the machine's boot and the pid
// namespace.
std::string PlaceOfThisProcess();
// Returns the start time of a process in ticks since boot, "" if the process does not exist or is a
// zombie. Pids are reused, so a process is identified by its pid and its start time.
std::string StartOf(int64_t pid);

}  // namespace muster
