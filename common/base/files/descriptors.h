// The limit on a process's open files (RLIMIT_NOFILE). In a large cluster, the chief needs many
// descriptors: it has one connection from each member, and a second one from each member that
// reports a failure. Each of these connections takes two descriptors. A parameter server has one
// connection from each worker.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster {

// Raises this process's soft limit to the hard limit, which needs no privilege. Child processes
// inherit the limit. Returns the limit in effect. Called from main.
int64_t RaiseDescriptorLimit();

// Returns the soft limit in effect.
int64_t DescriptorLimit();

// Returns a ConfigurationError if `limit` is too low for a process to start. Without this check,
// libraries would abort when they find no descriptor.
absl::Status CheckDescriptorLimit(int64_t limit, int members, bool is_chief);

// Returns the number of descriptors that are enough for a member (or the chief) of a cluster of
// `members`.
int64_t DescriptorsNeeded(int members, bool is_chief);

// Returns the warning to log if `limit` is lower than DescriptorsNeeded, otherwise "".
std::string DescriptorWarning(int64_t limit, int members, bool is_chief);

}  // namespace muster
