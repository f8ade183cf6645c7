// The memory that this process can still use.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns the available memory in bytes: the minimum over the host and the cgroups (version 1 or 2)
// of this process. The available memory of a cgroup is its limit minus its usage. Inactive memory
// of the page cache counts as available. Reads /proc and /sys/fs/cgroup under the folder `root`,
// which only tests set. Ignores files that cannot be read.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace muster
