// The memory that this process can still use.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns the bytes available on the host or in the tightest cgroup (version 1 or 2) of this
// process, whichever is less. Memory that only caches files counts as available. Reads /proc and
// /sys/fs/cgroup under `root`. Files that cannot be read set no limit.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace muster
