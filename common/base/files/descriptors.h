// The limit on open files. The chief of a large cluster has one connection from each member, and a
// second one from each member that reports a failure. Each takes two descriptors. A parameter
// server has one connection from each worker.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster {

// Raises this process's soft limit (RLIMIT_NOFILE) to the hard limit, which needs no privilege.
// Child processes inherit it. Returns the limit in effect. Call it from main.
int64_t RaiseDescriptorLimit();

// Returns the soft limit in effect.
int64_t DescriptorLimit();

// Returns a ConfigurationError if a process with `limit` could not start at all. The libraries
// abort if no descriptor is available.
absl::Status CheckDescriptorLimit(int64_t limit, int members, bool is_chief);

// Returns the maximum that a member of a cluster of `members` needs, generously counted.
int64_t DescriptorsNeeded(int members, bool is_chief);

// Returns the warning to log if `limit` is lower than DescriptorsNeeded, otherwise "".
std::string DescriptorWarning(int64_t limit, int members, bool is_chief);

}  // namespace muster
