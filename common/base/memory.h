// The memory that this process can still use.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns the available memory in bytes: the least of what the host and the cgroups (version 1 or
// 2) of this process have left. Memory that only caches files counts as available. Reads /proc and
// /sys/fs/cgroup under the folder `root`, which tests replace. Ignores files that cannot be read.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace muster
