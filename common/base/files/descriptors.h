// The limit on a process's open files (RLIMIT_NOFILE). In a large cluster, the chief needs many
// file descriptors. Each member (a chief or worker task) has one connection to the chief, and a
// second connection while the member reports a failure. The chief's server uses two descriptors for
// each connection. A parameter server has one connection from each worker.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster {

// Raises this process's soft limit to the hard limit. This needs no privilege. Child processes
// inherit the limit. Returns the new soft limit. Called from main.
int64_t RaiseDescriptorLimit();

// Returns the current soft limit.
int64_t DescriptorLimit();

// Returns a ConfigurationError if a process cannot start with the soft limit `limit`. Without this
// check, a library would abort the process when no descriptor is free. `members` is the number of
// members, and `is_chief` says whether this process is the chief.
absl::Status CheckDescriptorLimit(int64_t limit, int members, bool is_chief);

// Returns the warning to log if `limit` is lower than the number of descriptors that this process
// needs, otherwise "".
std::string DescriptorWarning(int64_t limit, int members, bool is_chief);

}  // namespace muster
