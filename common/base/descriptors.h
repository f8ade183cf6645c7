// The limit on open files. The chief of a large cluster has a connection from each member, and a
// second one from each that reports a failure, and each takes two descriptors; a server of
// parameters has one from each worker.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster {

// Raises this process's soft limit (RLIMIT_NOFILE) to the hard one, as any process may; programs
// started from it inherit that. Returns the limit that holds now. Call from main.
int64_t RaiseDescriptorLimit();

// The soft limit that holds now.
int64_t DescriptorLimit();

// ConfigurationError where a process with `limit` could not even begin: the libraries below it
// abort where they find no descriptor.
absl::Status CheckDescriptorLimit(int64_t limit, int members, bool is_chief);

// What a member of a cluster of `members` needs at most, by a generous count.
int64_t DescriptorsNeeded(int members, bool is_chief);

// The sentence to log where `limit` is less than that; "" where it is enough.
std::string DescriptorWarning(int64_t limit, int members, bool is_chief);

}  // namespace muster
